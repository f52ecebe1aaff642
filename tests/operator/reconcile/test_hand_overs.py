"""Pods that end and wait for a successor: each is ordered to drain once one is ready, or once none is to come."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from rota_operator.reconcile.instances import (
    REPLACEMENT_MS,
    Holder,
    InstancePool,
    PodSeen,
    assigned,
    hand_overs,
)

pytestmark = pytest.mark.unit
POOL = InstancePool("orders", 3, 45_000, 60_000)
HOLDERS = {f"orders-{number}": Holder(pod, f"uid-{pod}") for number, pod in enumerate("abc")}


def pod(name: str, *, connected: bool = True, ready: bool = True) -> PodSeen:
    created = f"2026-01-01T00:00:{ord(name) - ord('a'):02}Z"
    return PodSeen(Holder(name, f"uid-{name}"), created, connected, is_ready=ready)


def ending(name: str, for_ms: int = 0) -> PodSeen:
    return replace(pod(name), is_leaving=True, awaits_successor_ms=for_ms)


def draining(name: str, *, connected: bool = True) -> PodSeen:
    return replace(pod(name), is_leaving=True, is_connected=connected)


def starting(name: str) -> PodSeen:
    return pod(name, connected=False, ready=False)


def handed_over(*pods: PodSeen, size: int = 3, holders: Mapping[str, Holder] = HOLDERS) -> Mapping[str, bool]:
    """By the names of the pods."""
    pool = POOL._replace(size=size)
    found = hand_overs(pool, assigned(pool, holders, pods), pods)
    return {holder.pod: has_successor for holder, has_successor in found.items()}


LATE = REPLACEMENT_MS
A, B, C, D, E = (pod(name) for name in "abcde")
CASES: dict[str, tuple[Sequence[PodSeen], Mapping[str, bool]]] = {
    "nobody ends": ([A, B, C], {}),
    "one that is ready waits": ([ending("a"), B, C, D], {"a": True}),
    "it is not ready yet": ([ending("a", LATE), B, C, pod("d", ready=False)], {}),
    "it has not started yet": ([ending("a", LATE), B, C, starting("d")], {}),
    "none has been created yet": ([ending("a", LATE - 1), B, C], {}),
    "none is created": ([ending("a", LATE), B, C], {"a": False}),
    "none is left, as when the workload is deleted": (
        [ending("a", LATE), ending("b", LATE), ending("c", LATE - 1)],
        {"a": False, "b": False},
    ),
    "one waits for two": ([ending("a"), ending("b"), C, D, starting("e")], {"a": True}),
    "one waits for two, and no other comes": (
        [ending("a", LATE), ending("b", LATE), C, D],
        {"a": True, "b": False},
    ),
    "two wait for two": ([ending("a"), ending("b"), C, D, E], {"a": True, "b": True}),
    "one waits for one that drains already": ([draining("a"), ending("b"), C, D, starting("e")], {}),
    "one of a lost node drains nothing": (
        [draining("a", connected=False), ending("b"), C, D],
        {"b": True},
    ),
    "a pod drains that is not deleted": ([replace(A, awaits_successor_ms=0), B, C], {"a": False}),
    "the same with a surplus pod": ([replace(A, awaits_successor_ms=0), B, C, D], {"a": False}),
    "a pod without an instance": ([A, B, C, ending("d")], {"d": False}),
}


@pytest.mark.parametrize("case", CASES)
def test_each_ending_pod_waits_for_one_that_is_to_come(case: str) -> None:
    pods, expected = CASES[case]
    assert handed_over(*pods) == expected
    assert handed_over(*reversed(pods)) == expected, "in any order"


def test_a_surplus_pod_succeeds_no_pod_that_is_scaled_away() -> None:
    assert handed_over(ending("a"), B, C, D, size=2) == {}
    assert handed_over(ending("a", LATE), B, C, D, size=2) == {"a": False}


def test_a_pod_that_starts_takes_an_unused_instance_first() -> None:
    assert handed_over(ending("a", LATE), B, C, starting("d"), size=4) == {"a": False}
    assert handed_over(ending("a", LATE), B, C, starting("d"), starting("e"), size=4) == {}


def test_a_ready_pod_gets_an_instance_before_an_older_one_that_is_not() -> None:
    pods = [replace(A, is_over=True), B, C, pod("d", ready=False), E]
    assert assigned(POOL, HOLDERS, pods)["orders-0"].pod == "e"
