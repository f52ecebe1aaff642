"""Records that fail for good: dead letters, partitions that stop, and what a crash of the application is charged to."""

import pytest

from rota_sidecar.core.ledger.batches import Ordering
from rota_sidecar.core.ledger.rules import Rules, Verdict
from tests.sidecar.core.ledger.steps import (
    BY_KEY,
    IN_ORDER,
    ONE_BY_ONE,
    UNORDERED,
    ack,
    batch,
    bury,
    commit,
    listed,
    opened,
    read,
    refused,
    retry,
    skip,
    stopped,
    take,
    wants_alone,
)

DEAD_LETTERS = Rules(has_dead_letters=True)


def test_a_record_is_not_passed_before_its_dead_letter_is_written() -> None:
    ledger = opened(DEAD_LETTERS, batch(0, 3))
    take(ledger)
    bury(ledger, 0)
    # The others of the partition go on.
    ack(ledger, 1, 2)
    (dead_letter,) = ledger.dead_letters()
    assert (
        dead_letter.offset,
        dead_letter.batch_slice.count,
        dead_letter.reason,
        dead_letter.deliveries,
    ) == (
        0,
        1,
        "it cannot be read",
        1,
    )
    assert ledger.point.offset == 0
    ledger.dead_letter_written(0)
    assert ledger.point.offset == 3


def test_a_dead_letter_has_a_reason_of_bounded_length() -> None:
    ledger = opened(DEAD_LETTERS, batch(0))
    take(ledger)
    ledger.judge(0, 0, Verdict.DEAD_LETTER, 0, reason="why " * 100_000)
    assert len(ledger.dead_letters()[0].reason) == 1_000


def test_a_dead_letter_is_due_once_and_again_after_it_failed() -> None:
    ledger = opened(DEAD_LETTERS, batch(0, 3))
    take(ledger)
    bury(ledger, 1)
    assert [dead_letter.offset for dead_letter in ledger.dead_letters()] == [1]
    assert ledger.dead_letters() == ()
    ledger.dead_letter_failed(1)
    assert [dead_letter.offset for dead_letter in ledger.dead_letters()] == [1]


def test_a_dead_letter_of_a_record_that_was_settled_meanwhile_changes_nothing() -> None:
    ledger = opened(DEAD_LETTERS, batch(0, 3))
    take(ledger)
    bury(ledger, 0)
    ledger.dead_letters()
    ledger.settle_below(1, 0)
    ledger.dead_letter_failed(0)
    ledger.dead_letter_written(0)
    assert ledger.dead_letters() == ()
    assert ledger.point.offset == 1


@pytest.mark.parametrize("ordering", list(Ordering))
def test_the_last_retry_makes_a_dead_letter(ordering: Ordering) -> None:
    ledger = opened(Rules(ordering=ordering, retries=2, has_dead_letters=True), batch(0, 1))
    for deliveries in (1, 2, 3):
        assert listed(ledger.take(1, 1, 0, alone=False)) == [(0, deliveries)]
        retry(ledger, 0, after_ms=0)
    assert take(ledger) == []
    assert [(dead_letter.offset, dead_letter.deliveries) for dead_letter in ledger.dead_letters()] == [(0, 3)]


@pytest.mark.parametrize("ordering", list(Ordering))
def test_without_dead_letters_the_partition_stops_and_says_why(ordering: Ordering) -> None:
    ledger = opened(Rules(ordering=ordering), batch(0, 4))
    take(ledger, 2)
    bury(ledger, 0)
    assert (
        "offset 0 failed permanently, and no dead-letter topic is configured (it cannot be read)"
        in stopped(ledger)
    )
    assert take(ledger) == []
    assert ledger.dead_letters() == ()
    # What is in hand may still be done.
    ack(ledger, 1)
    assert ledger.point.offset == 0


def test_a_stopped_partition_goes_on_when_the_record_is_skipped() -> None:
    ledger = opened(IN_ORDER, batch(0, 4))
    take(ledger, 2)
    bury(ledger, 0)
    bury(ledger, 1)
    skip(ledger, 0)
    assert "offset 1" in stopped(ledger)
    assert "offset 1 already has a verdict" in refused(ledger, 1, verdict=Verdict.ACK)
    skip(ledger, 1)
    assert stopped(ledger) == ""
    assert take(ledger) == [2, 3]


def test_a_stopped_partition_goes_on_when_the_application_commits_past_the_record() -> None:
    ledger = opened(IN_ORDER, batch(0, 4))
    take(ledger, 2)
    bury(ledger, 0)
    ledger.settle_below(1, 0)
    assert stopped(ledger) == ""
    assert take(ledger) == [2, 3]


@pytest.mark.parametrize("rules", [IN_ORDER, ONE_BY_ONE, BY_KEY, UNORDERED], ids=str)
def test_who_goes_in_good_order_is_charged_with_nothing(rules: Rules) -> None:
    ledger = opened(rules, batch(0, 4))
    held = take(ledger)
    ledger.application_gone(0, clean=True)
    assert (ledger.in_flight, ledger.waiting) == (0, 4)
    assert listed(ledger.take(9, 9, 0, alone=False)) == [(offset, 1) for offset in held]


def test_of_many_in_order_the_first_one_is_charged() -> None:
    ledger = opened(IN_ORDER, batch(0, 4))
    take(ledger)
    ack(ledger, 0)
    ledger.application_gone(0, clean=False)
    # And from now on they go out one by one.
    assert take(ledger) == []
    assert commit(ledger) == (1, "rota:1:0:1:one")
    assert listed(ledger.take(9, 9, 0, alone=False)) == [(1, 2)]
    ack(ledger, 1)
    take(ledger)
    commit(ledger)
    assert listed(ledger.take(9, 9, 0, alone=False)) == [(2, 1)]


@pytest.mark.parametrize("rules", [BY_KEY, UNORDERED], ids=["by key", "unordered"])
def test_side_by_side_all_in_hand_are_charged(rules: Rules) -> None:
    ledger = opened(rules, batch(0, 4))
    take(ledger, 3)
    ack(ledger, 1)
    ledger.application_gone(0, clean=False)
    assert listed(ledger.take(9, 9, 0, alone=False)) == [(0, 2), (2, 2), (3, 1)]


def test_who_was_charged_too_often_goes_out_alone_before_it_is_blamed() -> None:
    ledger = opened(Rules(ordering=Ordering.UNORDERED, retries=1, has_dead_letters=True), batch(0, 3))
    for _ in range(2):
        assert take(ledger, 2) == [0, 1]
        ledger.application_gone(0, clean=False)
    assert wants_alone(ledger)
    # Not while something else is in hand somewhere; and nothing else goes meanwhile.
    assert take(ledger) == []
    assert take(ledger, alone=True) == [0]
    assert wants_alone(ledger)
    assert take(ledger, alone=True) == []
    ack(ledger, 0)
    assert take(ledger, alone=True) == [1]
    ledger.application_gone(0, clean=False)
    assert not wants_alone(ledger)
    assert [
        (dead_letter.offset, dead_letter.deliveries, dead_letter.reason)
        for dead_letter in ledger.dead_letters()
    ] == [(1, 3, "the application crashed 3 times while this record was in flight")]
    assert take(ledger) == [2]


def test_a_record_that_asks_for_another_delivery_is_not_blamed_for_what_others_did() -> None:
    ledger = opened(Rules(ordering=Ordering.UNORDERED, retries=1, has_dead_letters=True), batch(0, 2))
    take(ledger)
    ledger.application_gone(0, clean=False)
    assert take(ledger) == [0, 1]
    # The first time that it says so itself, though it was delivered before.
    retry(ledger, 0, after_ms=0)
    assert ledger.dead_letters() == ()


def test_a_crash_in_which_nothing_was_in_hand_is_charged_to_nobody() -> None:
    ledger = opened(IN_ORDER, batch(0, 2))
    ledger.application_gone(0, clean=False)
    assert listed(ledger.take(9, 9, 0, alone=False)) == [(0, 1), (1, 1)]


def test_a_record_that_is_alone_and_asks_for_another_delivery_is_waited_for_by_nobody_else() -> None:
    ledger = opened(Rules(ordering=Ordering.UNORDERED, retries=2), batch(0, 2))
    for _ in range(3):
        take(ledger, 1)
        ledger.application_gone(0, clean=False)
    assert take(ledger, alone=True) == [0]
    retry(ledger, 0, after_ms=50)
    assert not wants_alone(ledger)
    assert take(ledger) == [1]
    ack(ledger, 1)
    assert take(ledger, now_ms=50) == []
    assert wants_alone(ledger)


def test_reading_goes_on_while_a_partition_stands_still() -> None:
    ledger = opened(IN_ORDER, batch(0, 2))
    take(ledger)
    bury(ledger, 0)
    read(ledger, batch(2, 2))
    assert ledger.position == 4
