"""Commit points: never past a record without a final verdict, and past all others."""

import pytest

from rota_sidecar.core.ledger.commit_points import CommitMetadata, CommitPoint, State
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.ledger.rules import Rules, Verdict
from tests.sidecar.core.ledger.steps import (
    BY_KEY,
    IN_ORDER,
    UNORDERED,
    ack,
    awaits,
    batch,
    bury,
    commit,
    opened,
    read,
    refused,
    retry,
    skip,
    take,
)

ALL = pytest.mark.parametrize("rules", [IN_ORDER, BY_KEY, UNORDERED], ids=["in order", "by key", "unordered"])


@ALL
def test_nothing_is_committed_past_a_record_without_a_verdict(rules: Rules) -> None:
    ledger = opened(rules, batch(0, 5))
    take(ledger)
    ack(ledger, 1, 2, 4)
    assert ledger.point.offset == 0
    ack(ledger, 0)
    assert ledger.point.offset == 3
    skip(ledger, 3)
    assert ledger.point.offset == 5


@ALL
def test_a_record_that_is_retried_is_not_passed(rules: Rules) -> None:
    ledger = opened(rules, batch(0, 3))
    take(ledger)
    ack(ledger, 0)
    retry(ledger, 1)
    assert ledger.point.offset == 1


def test_gaps_are_no_lag() -> None:
    ledger = opened(IN_ORDER, batch(3, 2), batch(10, 2))
    assert ledger.point.offset == 3
    take(ledger)
    ack(ledger, 3, 4)
    assert ledger.point.offset == 10
    assert ledger.judge(10, 11, Verdict.ACK, 0).settled == 2
    ledger.fetched([], 15)
    assert ledger.point.offset == 15


def test_a_record_that_is_read_and_not_handed_out_is_not_passed() -> None:
    ledger = opened(IN_ORDER, batch(0, 5))
    take(ledger, 2)
    ack(ledger, 0, 1)
    assert ledger.point.offset == 2
    assert ledger.dispatch_position == 2


def test_records_before_the_position_are_passed_over_though_their_batch_is_read() -> None:
    ledger = opened(IN_ORDER, batch(0, 10), start=7)
    assert ledger.buffered_bytes == 30
    assert take(ledger) == [7, 8, 9]


def test_one_verdict_for_many_is_for_all_between_them_or_for_none() -> None:
    ledger = opened(IN_ORDER, batch(0, 3), batch(10, 3))
    take(ledger, 5)
    assert "12 was never delivered" in refused(ledger, 0, 12)
    assert ledger.judge(1, 10, Verdict.ACK, 0).settled == 3
    assert "offset 1 is already done" in refused(ledger, 0, 11)


def test_a_verdict_on_what_is_not_in_hand_is_refused() -> None:
    ledger = opened(Rules(has_dead_letters=True), batch(0, 4), batch(10, 2))
    assert "offset 0 was never delivered" in refused(ledger, 0)
    take(ledger, 4)
    ack(ledger, 0)
    retry(ledger, 2, after_ms=100)
    bury(ledger, 1)
    assert "offset 0 is already done" in refused(ledger, 0)
    assert "offset 1 already has a verdict" in refused(ledger, 1)
    assert "offset 2 will be delivered again" in refused(ledger, 2)
    assert "offset 3 will be delivered again" in refused(ledger, 3)
    assert "no record at offset 7" in refused(ledger, 7)
    assert "offset 12 was never delivered" in refused(ledger, 12)
    assert "the last offset is below the first" in refused(ledger, 3, 2)


@pytest.mark.parametrize("verdict", [Verdict.RETRY, Verdict.DEAD_LETTER])
def test_only_ack_and_skip_may_name_several_records(verdict: Verdict) -> None:
    ledger = opened(IN_ORDER, batch(0, 4))
    take(ledger)
    assert "one record at a time" in refused(ledger, 0, 1, verdict)


@ALL
def test_what_the_application_commits_by_itself_is_done_whatever_it_was(rules: Rules) -> None:
    ledger = opened(rules, batch(0, 8, "aabbaabb"))
    take(ledger, 2)
    ledger.settle_below(5, 0)
    assert (ledger.point.offset, ledger.in_flight, ledger.dispatch_position) == (5, 0, 5)
    assert "already done" in refused(ledger, 0)
    assert take(ledger)[0] == 5


def test_records_that_are_settled_after_the_position_are_not_fetched() -> None:
    ledger = opened(IN_ORDER, batch(0, 4))
    ledger.settle_below(10, 0)
    assert (ledger.position, ledger.point.offset, ledger.buffered_bytes) == (10, 10, 0)
    # A fetch that was under way.
    ledger.fetched([batch(4, 9)], 13)
    assert take(ledger) == [10, 11, 12]


def test_settling_what_is_done_changes_nothing() -> None:
    ledger = opened(IN_ORDER, batch(0, 4))
    take(ledger)
    ack(ledger, 0, 1)
    before = ledger.point
    ledger.settle_below(1, 0)
    assert ledger.point == before


def test_nothing_is_handed_out_before_the_start_is_committed() -> None:
    ledger = Ledger(5, IN_ORDER, CommitMetadata())
    assert awaits(ledger)
    assert ledger.point == CommitPoint(5, "rota:1:0:0:open")
    read(ledger, batch(5, 2))
    assert take(ledger) == []
    commit(ledger)
    assert not awaits(ledger)
    assert take(ledger) == [5, 6]


def test_without_marks_nothing_waits_for_a_commit() -> None:
    ledger = Ledger(5, IN_ORDER, None)
    read(ledger, batch(5, 2))
    assert not awaits(ledger)
    assert take(ledger) == [5, 6]
    assert ledger.point == ledger.close() == CommitPoint(5, "")


def test_a_clean_end_says_so_and_repeats_nothing() -> None:
    ledger = opened(IN_ORDER, batch(0, 4))
    take(ledger)
    ack(ledger, 0, 1)
    assert ledger.close() == CommitPoint(2, "rota:1:0:0:clean")


def test_who_goes_on_after_a_clean_end_announces_it() -> None:
    ledger = opened(IN_ORDER, batch(0, 4))
    take(ledger, 1)
    ledger.committed(ledger.close())
    # A drain commits, and wants nothing more.
    assert not awaits(ledger)
    assert take(ledger) == []
    assert awaits(ledger)
    commit(ledger)
    assert take(ledger) == [1, 2, 3]


def test_a_tenure_that_ends_before_it_began_wants_nothing() -> None:
    ledger = Ledger(0, IN_ORDER, CommitMetadata())
    ledger.committed(ledger.close())
    assert not awaits(ledger)


def test_how_often_a_record_has_failed_is_known_in_the_next_tenure() -> None:
    ledger = opened(IN_ORDER, batch(0, 4))
    take(ledger)
    ack(ledger, 0)
    retry(ledger, 1)
    assert ledger.close() == CommitPoint(1, "rota:1:1:0:clean")
    following = opened(IN_ORDER, batch(1, 3), start=1, commit_metadata=CommitMetadata(State.CLEAN, 1))
    assert [each.deliveries for each in following.take(9, 9, 0, alone=False)] == [2, 1]


def test_what_is_known_of_a_record_that_is_gone_is_of_no_other() -> None:
    ledger = opened(IN_ORDER, batch(3, 3), start=1, commit_metadata=CommitMetadata(State.CLEAN, 1))
    assert [each.deliveries for each in ledger.take(9, 9, 0, alone=False)] == [1]


def test_the_record_that_is_waited_for_is_known_with_its_batch() -> None:
    first, second = batch(0, 2), batch(5, 2)
    ledger = opened(IN_ORDER, first, second)
    assert ledger.first_unresolved == (first, 0)
    take(ledger)
    ack(ledger, 0, 1, 5)
    assert ledger.first_unresolved == (second, 6)
    ack(ledger, 6)
    assert ledger.first_unresolved is None
