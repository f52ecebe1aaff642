"""Offsets completed ahead of a clean commit are not delivered again, and always fit into the commit's metadata."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_sidecar.core.ledger import runs as completed_ahead
from rota_sidecar.core.ledger.commit_points import CommitMetadata, CommitPoint, State, parse_commit_metadata
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.ledger.rules import Rules
from rota_sidecar.core.ledger.runs import Run, Runs
from tests.sidecar.core.ledger.steps import (
    BY_KEY,
    IN_ORDER,
    UNORDERED,
    ack,
    batch,
    commit,
    completed_ahead_of,
    opened,
    read,
    take,
)

BESIDE = pytest.mark.parametrize("rules", [BY_KEY, UNORDERED], ids=["by key", "unordered"])
# Kafka's and Rota's.
METADATA_MAX = 4_096


def runs_of(offsets: set[int]) -> list[Run]:
    runs = Runs()
    for offset in offsets:
        runs.add(offset, offset + 1)
    return list(runs)


@given(st.sets(st.integers(10**12, 10**12 + 2 * completed_ahead.SPAN_MAX)))
def test_offsets_are_read_as_they_were_written_as_far_as_they_fit(offsets: set[int]) -> None:
    commit_metadata = CommitMetadata(State.CLEAN, 3, 14, completed_ahead.write(runs_of(offsets)))
    assert len(commit_metadata.metadata) <= METADATA_MAX
    assert parse_commit_metadata(commit_metadata.metadata) == commit_metadata
    before = min(offsets, default=0) + completed_ahead.SPAN_MAX
    assert completed_ahead_of(commit_metadata.metadata) == {offset for offset in offsets if offset < before}


@pytest.mark.parametrize(
    "said", [":", ":7:", ":7:AAA", ":7:AAAAA", ":-7:AAAA", ":7:AA=A", ":7:" + "AAAA" * 1_001, "7:AAAA"]
)
def test_what_nobody_writes_says_nothing(said: str) -> None:
    assert parse_commit_metadata(f"rota:1:3:14:clean{said}") == CommitMetadata()


@BESIDE
def test_a_clean_stop_repeats_nothing_though_the_first_record_is_not_done(rules: Rules) -> None:
    ledger = opened(rules, batch(0, 8, "abcdefgh"))
    take(ledger)
    ack(ledger, 2, 3, 5)
    point = ledger.close()
    assert point.offset == 0
    after = opened(rules, batch(0, 8, "abcdefgh"), commit_metadata=parse_commit_metadata(point.metadata))
    assert take(after) == [0, 1, 4, 6, 7]
    ack(after, 0, 1)
    assert after.point.offset == 4
    ack(after, 4)
    assert after.point.offset == 6


@BESIDE
def test_who_is_cut_off_repeats_only_what_was_done_since_the_last_clean_stop(rules: Rules) -> None:
    ledger = opened(rules, batch(0, 8, "abcdefgh"))
    take(ledger)
    ack(ledger, 2, 3)
    again = opened(
        rules, batch(0, 8, "abcdefgh"), commit_metadata=parse_commit_metadata(ledger.close().metadata)
    )
    take(again)
    ack(again, 5)
    point = commit(again)
    assert completed_ahead_of(point.metadata) == {2, 3}
    ack(again, 0, 1)
    assert again.point == CommitPoint(4, "rota:1:0:0:open")


def test_who_goes_on_after_a_clean_commit_says_it_on() -> None:
    ledger = opened(BY_KEY, batch(0, 4, "abcd"))
    take(ledger)
    ack(ledger, 2)
    ledger.committed(ledger.close())
    assert completed_ahead_of(ledger.point.metadata) == {2}


def test_another_ordering_knows_it_too() -> None:
    ledger = opened(UNORDERED, batch(0, 4))
    take(ledger)
    ack(ledger, 1, 2)
    after = opened(IN_ORDER, batch(0, 4), commit_metadata=parse_commit_metadata(ledger.close().metadata))
    assert take(after) == [0, 3]


def test_gaps_of_the_log_and_of_what_was_done_lie_side_by_side() -> None:
    ledger = opened(UNORDERED, batch(3, 3), batch(10, 3))
    take(ledger)
    ack(ledger, 4, 5, 10, 12)
    commit_metadata = parse_commit_metadata(ledger.close().metadata)
    assert completed_ahead_of(commit_metadata.metadata) == {4, 5, 10, 12}
    after = opened(UNORDERED, batch(3, 3), start=3, commit_metadata=commit_metadata)
    assert after.close().offset == 3
    assert completed_ahead_of(after.close().metadata) == {4, 5, 10, 12}, "though all of it was not read again"
    read(after, batch(10, 3))
    assert after.buffered_bytes == 20
    assert take(after) == [3, 11]


def test_as_much_as_may_be_in_hand_fits() -> None:
    rules = UNORDERED
    ledger = opened(rules, batch(0, rules.in_flight_max))
    take(ledger)
    ack(ledger, *range(1, rules.in_flight_max, 2))
    point = ledger.close()
    assert len(point.metadata) <= METADATA_MAX
    assert completed_ahead_of(point.metadata) == set(range(1, rules.in_flight_max, 2))


def test_a_coordinator_that_takes_no_long_metadata_gets_less() -> None:
    ledger = opened(BY_KEY, batch(0, 4, "abcd"))
    take(ledger)
    ack(ledger, 2)
    ledger.omit_completed_ahead()
    assert ledger.close() == CommitPoint(0, "rota:1:0:0:clean")


def test_a_ledger_without_marks_says_nothing() -> None:
    ledger = Ledger(0, BY_KEY, None)
    read(ledger, batch(0, 4, "abcd"))
    take(ledger)
    ack(ledger, 2)
    assert ledger.close() == CommitPoint(0, "")


@pytest.mark.parametrize("rules", [IN_ORDER, BY_KEY, UNORDERED], ids=["in order", "by key", "unordered"])
@pytest.mark.parametrize(
    ("done", "dead_letter"), [(set(), 2), ({2, 3}, 4), ({2, 4}, 3), ({2, 3, 4, 5, 6}, None)], ids=str
)
def test_what_stands_for_a_batch_that_cannot_be_read_is_the_first_offset_of_it_that_is_not_done(
    rules: Rules, done: set[int], dead_letter: int | None
) -> None:
    commit_metadata = CommitMetadata(State.CLEAN, 0, 0, completed_ahead.write(runs_of(done)))
    ledger = opened(
        replace(rules, has_dead_letters=True), batch(0, 2, "ab"), start=0, commit_metadata=commit_metadata
    )
    assert take(ledger) == [0, 1]
    ack(ledger, 0, 1)
    ledger.fail_unreadable(batch(2), 7, "why", 0)
    due = ledger.dead_letters()
    assert [(each.offset, each.reason, each.deliveries) for each in due] == (
        [] if dead_letter is None else [(dead_letter, "why", 0)]
    )
    assert take(ledger) == []
    for each in due:
        assert ledger.point.offset == dead_letter
        ledger.dead_letter_written(each.offset)
    assert (ledger.position, ledger.point.offset) == (7, 7)
