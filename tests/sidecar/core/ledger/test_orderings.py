"""Records that wait for each other in each ordering, and the time of records in flight."""

import pytest

from rota_sidecar.core.ledger.batches import Batch, Ordering
from rota_sidecar.core.ledger.rules import Backoff, Rules, Verdict
from tests.sidecar.core.ledger.steps import (
    BY_KEY,
    IN_ORDER,
    ONE_BY_ONE,
    UNORDERED,
    ack,
    batch,
    bury,
    held_since,
    listed,
    opened,
    refused,
    retry,
    take,
)


def test_a_partition_is_one_lane_however_many_records_are_in_hand() -> None:
    ledger = opened(IN_ORDER, batch(0, 5))
    assert take(ledger, 3, lanes=0) == []
    assert take(ledger, 3, lanes=1) == [0, 1, 2]
    assert ledger.lanes_busy == 1
    assert take(ledger, lanes=0) == [3, 4]


def test_who_takes_one_gets_one_at_a_time() -> None:
    ledger = opened(ONE_BY_ONE, batch(0, 3))
    assert take(ledger) == [0]
    assert take(ledger) == []
    ack(ledger, 0)
    assert take(ledger) == [1]


def test_whole_batches_go_out_whole() -> None:
    batches = [batch(0, 500), batch(500, 500), batch(1000, 10)]
    (dispatch,) = opened(IN_ORDER, *batches).take(1_000, 1, 0, alone=False)
    assert [(batch_slice.batch, batch_slice.first, batch_slice.end) for batch_slice in dispatch.slices] == [
        (batches[0], 0, 500),
        (batches[1], 500, 1000),
    ]


def test_after_a_retry_everything_behind_it_comes_again_and_waits_for_it() -> None:
    ledger = opened(Rules(backoff_ms=100), batch(0, 5))
    take(ledger, 4)
    retry(ledger, 1)
    assert (ledger.in_flight, ledger.waiting, ledger.wake_ms) == (1, 4, 100)
    assert "will be delivered again" in refused(ledger, 3)
    assert take(ledger, now_ms=99) == []
    dispatches = ledger.take(100, 0, 100, alone=False)
    assert listed(dispatches) == [(1, 2), (2, 1), (3, 1), (4, 1)]
    assert ledger.wake_ms is None


def test_what_is_done_behind_a_retry_does_not_come_again() -> None:
    ledger = opened(IN_ORDER, batch(0, 5))
    take(ledger)
    ack(ledger, 2, 4)
    retry(ledger, 1, after_ms=0)
    assert take(ledger) == [1, 3]


def test_what_is_behind_the_last_retry_comes_again_too() -> None:
    ledger = opened(Rules(retries=0, has_dead_letters=True), batch(0, 3))
    take(ledger)
    retry(ledger, 0)
    assert [dead_letter.offset for dead_letter in ledger.dead_letters()] == [0]
    assert take(ledger) == [1, 2]


def test_records_of_a_key_go_out_one_after_the_other() -> None:
    ledger = opened(BY_KEY, batch(0, 7, "aab.a.b"))
    assert take(ledger) == [0, 2, 3, 5]
    assert ledger.dispatch_position == 1
    ack(ledger, 0)
    assert take(ledger) == [1]
    ack(ledger, 2, 1)
    assert take(ledger) == [4, 6]


def test_a_key_waits_for_its_retry_and_others_do_not() -> None:
    ledger = opened(BY_KEY, batch(0, 4, "aabb"))
    assert take(ledger) == [0, 2]
    retry(ledger, 0, after_ms=50)
    ack(ledger, 2)
    assert take(ledger) == [3]
    assert listed(ledger.take(9, 9, 50, alone=False)) == [(0, 2)]
    ack(ledger, 0)
    assert take(ledger) == [1]


def test_a_key_waits_until_its_dead_letter_is_written() -> None:
    ledger = opened(Rules(ordering=Ordering.KEY, has_dead_letters=True), batch(0, 2, "aa"))
    take(ledger)
    bury(ledger, 0)
    ledger.dead_letters()
    assert take(ledger) == []
    ledger.dead_letter_written(0)
    assert take(ledger) == [1]


def test_keys_that_were_not_read_are_missed() -> None:
    with pytest.raises(ValueError, match="batch at offset 0 has no keys"):
        opened(BY_KEY).fetched([Batch(0, 1, 10, None)], 1)


def test_unordered_nobody_waits_for_anybody() -> None:
    ledger = opened(UNORDERED, batch(0, 5, "aaaaa"))
    assert take(ledger, lanes=3) == [0, 1, 2]
    retry(ledger, 1, after_ms=50)
    ack(ledger, 2)
    assert take(ledger, lanes=2) == [3, 4]
    assert ledger.lanes_busy == 3
    assert take(ledger, now_ms=50) == [1]


@pytest.mark.parametrize("ordering", list(Ordering))
def test_no_record_far_behind_an_unfinished_one_goes_out(ordering: Ordering) -> None:
    ledger = opened(Rules(ordering=ordering, in_flight_max=4), batch(0, 10))
    assert take(ledger) == [0, 1, 2, 3]
    ack(ledger, 1, 2)
    assert take(ledger) == []
    ack(ledger, 0)
    assert take(ledger) == [4, 5, 6]


@pytest.mark.parametrize("rules", [BY_KEY, UNORDERED], ids=["by key", "unordered"])
def test_a_slow_record_does_not_keep_in_memory_what_lies_behind_it(rules: Rules) -> None:
    ledger = opened(rules, batch(0, 2), batch(2, 2))
    take(ledger)
    ack(ledger, 1, 2, 3)
    # Its batches are let go of as soon as all of their records are done.
    assert [entry.batch is None for entry in ledger._buffer._entries] == [False, True]


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        (Backoff.CONSTANT, [100, 100, 100, 100]),
        (Backoff.LINEAR, [100, 200, 300, 350]),
        (Backoff.EXPONENTIAL, [100, 200, 350, 350]),
    ],
)
def test_the_wait_before_a_retry_grows_to_its_maximum(backoff: Backoff, waits: list[int]) -> None:
    ledger = opened(Rules(backoff=backoff, backoff_ms=100, backoff_max_ms=350), batch(0))
    now_ms = 0
    for deliveries, wait_ms in enumerate(waits, 1):
        assert listed(ledger.take(1, 1, now_ms, alone=False)) == [(0, deliveries)]
        retry(ledger, 0, now_ms=now_ms)
        now_ms += wait_ms
        assert ledger.wake_ms == now_ms


def test_retries_that_were_settled_leave_no_appointments_behind() -> None:
    ledger = opened(UNORDERED, batch(0, 1000))
    take(ledger, 1)
    retry(ledger, 0, after_ms=1)
    for offset in range(1, 1000):
        take(ledger, 1)
        retry(ledger, offset, after_ms=1_000_000)
        ledger.settle_below(offset, 0)
    assert len(ledger._failures._agenda) < 100


def test_in_order_the_clock_starts_anew_when_the_one_before_is_done() -> None:
    ledger = opened(IN_ORDER, batch(0, 4))
    assert held_since(ledger) is None
    take(ledger, 2, now_ms=10)
    take(ledger, 2, now_ms=20)
    assert held_since(ledger) == 10
    # Out of turn: the first one is where it was.
    ack(ledger, 1, now_ms=50)
    assert held_since(ledger) == 10
    ack(ledger, 0, now_ms=70)
    assert held_since(ledger) == 70
    assert ledger.judge(2, 3, Verdict.ACK, 80).settled == 2
    assert held_since(ledger) is None


def test_who_commits_instead_of_giving_verdicts_gets_on_too() -> None:
    ledger = opened(IN_ORDER, batch(0, 4))
    take(ledger, now_ms=10)
    ledger.settle_below(2, 90)
    assert held_since(ledger) == 90


def test_a_record_that_comes_again_has_its_time_anew() -> None:
    ledger = opened(IN_ORDER, batch(0, 3))
    take(ledger, now_ms=10)
    retry(ledger, 1, now_ms=20, after_ms=0)
    ack(ledger, 0, now_ms=20)
    take(ledger, now_ms=90)
    assert held_since(ledger) == 90


@pytest.mark.parametrize("rules", [BY_KEY, UNORDERED], ids=["by key", "unordered"])
def test_side_by_side_each_record_has_its_own_clock_and_the_oldest_counts(rules: Rules) -> None:
    ledger = opened(rules, batch(0, 3))
    take(ledger, 1, now_ms=10)
    take(ledger, 1, now_ms=20)
    take(ledger, 1, now_ms=30)
    ack(ledger, 1, now_ms=40)
    assert held_since(ledger) == 10
    ack(ledger, 0, now_ms=40)
    assert held_since(ledger) == 30
