"""The application of a pod that ends is served until its successor waits, and then the member leaves at once."""

from collections.abc import Callable

import pytest

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from tests.sidecar.core.delivery.driven import Driven, names, with_settings

SERVES_MS, DRAIN_MS = 10_000, 30_000


def order(driven: Driven) -> on.Drain:
    return on.Drain(driven.now_ms + DRAIN_MS, leaves_group=True, serves_until_ms=driven.now_ms + SERVES_MS)


def awaiting() -> Driven:
    """Five records are in flight when the pod is deleted."""
    driven = Driven().begin(0)
    driven.read(5)
    assert driven.step(order(driven)) == [do.AwaitSuccessor(driven.now_ms + SERVES_MS)]
    return driven


def waits(driven: Driven) -> bool:
    return driven.delivery.awaits_successor


def test_it_works_on_until_its_successor_waits_and_leaves_without_a_goodbye() -> None:
    driven = awaiting()
    driven.judge(0, 4)
    driven.read(3)
    assert driven.delivery.in_flight == 3, "records go on"
    assert waits(driven)
    assert "StopDispatch" in names(driven.step(on.HandOver(has_successor=True)))
    assert not waits(driven)
    driven.judge(5, 7)
    assert names(driven.answer_commit())[-1] == "Commit", "the first commit was under way"
    assert names(driven.answer_commit()) == ["Drained", "Leave"]
    assert driven.last(do.Leave).is_drained
    assert "a successor waits" in driven.delivery.readiness
    assert names(driven.revoke(0)) == ["StopFetching", "REVOKING"], "it still runs"
    assert names(driven.acknowledge()) == ["ReleasePartitions"]
    assert names(driven.revoked(0)) == ["REVOKED"]
    assert driven.step(on.LeftGroup()) == []
    assert names(driven.detach(clean=True)) == []


def end_without_successor(driven: Driven) -> list[do.Action]:
    return driven.step(on.HandOver(has_successor=False))


def end_of_time(driven: Driven) -> list[do.Action]:
    return driven.pass_time(SERVES_MS)


@pytest.mark.parametrize("end", [end_without_successor, end_of_time])
def test_without_a_successor_it_drains_and_waits_for_the_goodbye(
    end: Callable[[Driven], list[do.Action]],
) -> None:
    driven = awaiting()
    driven.judge(0, 4)
    driven.pass_time(5_000)
    driven.answer_commit()
    end(driven)
    driven.answer_commit()
    assert driven.last(do.Drained) == do.Drained(0)
    assert driven.all(do.Leave) == []
    assert names(driven.detach(clean=True)) == ["Leave"]


def test_the_whole_takes_no_longer_than_the_drain() -> None:
    driven = awaiting()
    driven.pass_time(DRAIN_MS - 1)
    assert driven.all(do.Drained) == []
    assert driven.pass_time(1) == [do.Drained(5)]


def test_a_hand_over_after_the_time_limit_counts() -> None:
    driven = awaiting()
    driven.judge(0, 4)
    driven.pass_time(5_000)
    driven.answer_commit()
    driven.pass_time(SERVES_MS)
    driven.answer_commit()
    assert names(driven.step(on.HandOver(has_successor=True))) == ["Leave"]


def test_a_hand_over_without_a_drain_changes_nothing() -> None:
    driven = Driven().begin(0)
    assert driven.step(on.HandOver(has_successor=True)) == []
    driven.read(5)
    assert driven.delivery.in_flight == 5


def detach(driven: Driven) -> list[do.Action]:
    return driven.detach(clean=True)


def suspend(driven: Driven) -> list[do.Action]:
    return driven.step(on.Configure(with_settings(driven.delivery.config, suspended=True)))


def lose(driven: Driven) -> list[do.Action]:
    return driven.step(on.Lost(frozenset(driven.delivery.held), "expelled"))


def order_to_drain(driven: Driven) -> list[do.Action]:
    return driven.step(on.Drain(driven.now_ms + DRAIN_MS))


@pytest.mark.parametrize("end", [detach, suspend, lose, order_to_drain])
def test_it_waits_only_while_the_application_is_served_and_no_one_else_orders_a_drain(
    end: Callable[[Driven], list[do.Action]],
) -> None:
    driven = awaiting()
    end(driven)
    assert not waits(driven)
    driven.step(order(driven))
    assert not waits(driven), "it drains already"


def test_a_goodbye_during_the_wait_is_followed_by_leaving() -> None:
    driven = awaiting()
    driven.judge(0, 4)
    driven.detach(clean=True)
    assert names(driven.answer_commit()) == ["Drained", "Leave"]


def without_application() -> Driven:
    driven = Driven().begin(0)
    driven.detach(clean=False)
    return driven


def suspended() -> Driven:
    driven = Driven().begin(0)
    suspend(driven)
    return driven


def without_partitions() -> Driven:
    driven = Driven().begin(0)
    lose(driven)
    return driven


@pytest.mark.parametrize("prepare", [without_application, suspended, without_partitions])
def test_a_member_that_serves_nothing_drains_at_once(prepare: Callable[[], Driven]) -> None:
    driven = prepare()
    assert names(driven.step(order(driven)))[0] == "StopDispatch"
    assert not waits(driven)


def test_a_repeated_order_waits_no_longer() -> None:
    driven = awaiting()
    driven.pass_time(4_000)
    assert driven.step(order(driven)) == []
    assert "StopDispatch" in names(driven.pass_time(SERVES_MS - 4_000))


def test_a_drain_that_expires_during_the_wait_is_answered_and_records_go_on() -> None:
    driven = awaiting()
    assert driven.step(on.Undrain()) == [do.Drained(5)]
    assert not waits(driven)
    driven.pass_time(SERVES_MS)
    assert driven.all(do.StopDispatch) == []
