"""The schedule of reconciles: one at a time for each ConsumerGroup, coalesced, failed ones later and later."""

import pytest

from rota_operator.cluster import queues
from rota_operator.cluster.api import REQUEST_S
from rota_operator.cluster.queues import BACKOFF_MAX_S, Key, Schedule

ORDERS, PAYMENTS = Key("shop", "orders"), Key("shop", "payments")


def test_keys_are_taken_in_the_order_in_which_they_are_due() -> None:
    schedule = Schedule()
    schedule.add(ORDERS, 2.0)
    schedule.add(PAYMENTS, 1.0)
    assert schedule.take(0.5) is None
    assert [schedule.take(3.0), schedule.take(3.0), schedule.take(3.0)] == [PAYMENTS, ORDERS, None]


def test_a_key_that_is_added_again_is_taken_once_at_the_earlier_time() -> None:
    schedule = Schedule()
    for at_s in (300.0, 1.0, 5.0):
        schedule.add(ORDERS, at_s)
    assert schedule.next_s == 1.0
    assert schedule.take(1.0) == ORDERS
    schedule.succeed(ORDERS, 1.0, None)
    assert schedule.next_s is None


def test_a_running_key_is_not_taken_a_second_time_and_runs_once_more_when_it_was_added_meanwhile() -> None:
    schedule = Schedule()
    schedule.add(ORDERS, 0.0)
    schedule.take(0.0)
    schedule.add(ORDERS, 0.1)
    schedule.add(ORDERS, 0.2)
    assert schedule.take(9.0) is None
    schedule.succeed(ORDERS, 9.0, 300.0)
    assert schedule.take(9.0) == ORDERS
    schedule.succeed(ORDERS, 9.0, None)
    assert schedule.take(999.0) is None


def test_a_key_that_succeeded_is_due_again_after_the_time_that_its_reconcile_returned() -> None:
    schedule = Schedule()
    schedule.add(ORDERS, 0.0)
    schedule.take(0.0)
    schedule.succeed(ORDERS, 10.0, 300.0)
    assert schedule.next_s == 310.0


def test_failures_in_succession_double_the_wait_up_to_its_maximum_and_a_success_ends_them() -> None:
    schedule = Schedule()
    schedule.add(ORDERS, 0.0)
    waits = []
    now_s = 0.0
    for _ in range(8):
        assert schedule.take(now_s) == ORDERS
        waits.append(schedule.fail(ORDERS, now_s))
        assert schedule.next_s == now_s + waits[-1]
        now_s += waits[-1]
    assert waits == [1, 2, 4, 8, BACKOFF_MAX_S, BACKOFF_MAX_S, BACKOFF_MAX_S, BACKOFF_MAX_S]
    schedule.take(now_s)
    schedule.succeed(ORDERS, now_s, 0.0)
    schedule.take(now_s)
    assert schedule.fail(ORDERS, now_s) == 1.0


def test_a_reconcile_whose_last_request_hung_is_tried_again_within_30_s() -> None:
    assert REQUEST_S + BACKOFF_MAX_S < 30


def test_changes_during_a_reconcile_that_fails_do_not_shorten_the_wait() -> None:
    schedule = Schedule()
    schedule.add(ORDERS, 0.0)
    schedule.take(0.0)
    schedule.add(ORDERS, 0.1)
    assert schedule.fail(ORDERS, 0.2) == 1.0
    assert schedule.take(1.1) is None
    assert schedule.take(1.2) == ORDERS


def test_a_change_after_a_failure_is_reconciled_at_once() -> None:
    schedule = Schedule()
    schedule.add(ORDERS, 0.0)
    schedule.take(0.0)
    schedule.fail(ORDERS, 0.0)
    schedule.add(ORDERS, 0.5)
    assert schedule.take(0.5) == ORDERS


def test_more_keys_than_the_bound_are_refused_and_known_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "KEYS_MAX", 1)
    schedule = Schedule()
    assert schedule.add(ORDERS, 0.0)
    assert not schedule.add(PAYMENTS, 0.0)
    assert schedule.add(ORDERS, 0.0)
    assert schedule.take(0.0) == ORDERS
    assert not schedule.add(PAYMENTS, 0.0)
    assert schedule.waiting == 0


def test_a_part_of_the_wait_is_left_out_by_chance() -> None:
    schedule = Schedule()
    schedule.add(ORDERS, 0.0)
    schedule.take(0.0)
    assert schedule.fail(ORDERS, 0.0, chance=1.0) == 1.0 - queues.JITTER
