"""Instances of static members: none has two holders, none is taken away, and a successor is the same member."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from rota_operator.reconcile.instances import Holder, InstancePool, PodSeen, assigned, scaled_away

pytestmark = pytest.mark.unit
POOL = InstancePool("orders", 3, 45_000, 60_000)


def pod(name: str, *, age: int = 0, uid: str = "", connected: bool = True, leaving: bool = False) -> PodSeen:
    return PodSeen(
        Holder(name, uid or f"uid-{name}"), f"2026-01-01T00:{59 - age:02}:00Z", connected, is_leaving=leaving
    )


def held(**names: str) -> Mapping[str, Holder]:
    """`held(o0="a")`: orders-0 is held by pod a."""
    return {f"orders-{name[1:]}": Holder(pod, f"uid-{pod}") for name, pod in names.items()}


def test_the_oldest_pods_get_the_lowest_instances() -> None:
    assert assigned(POOL, {}, [pod("b", age=1), pod("a", age=2), pod("c")]) == held(o0="a", o1="b", o2="c")


def test_a_pod_gets_its_instance_once_its_sidecar_is_connected() -> None:
    assert assigned(POOL, {}, [pod("a", age=2, connected=False), pod("b")]) == held(o0="b")


def test_a_pod_keeps_its_instance_without_its_sidecar_and_while_it_leaves() -> None:
    holders = held(o0="a", o1="b")
    seen = [pod("a", connected=False), pod("b", leaving=True), pod("c")]
    assert assigned(POOL, holders, seen) == held(o0="a", o1="b", o2="c")


def test_a_surplus_pod_waits_and_then_succeeds_the_pod_that_has_gone() -> None:
    holders = held(o0="a", o1="b", o2="c")
    surplus = pod("d")
    leaving = [pod("a"), pod("b", leaving=True), pod("c"), surplus]
    assert assigned(POOL, holders, leaving) == holders
    assert not scaled_away(POOL, holders, leaving), "the surplus pod succeeds it"
    assert assigned(POOL, holders, [pod("a"), pod("c"), surplus]) == held(o0="a", o1="d", o2="c")


def test_a_pod_of_the_same_name_is_another_one() -> None:
    holders = held(o0="a")
    new = pod("a", uid="second")
    assert assigned(replace_size(1), holders, [new]) == {"orders-0": Holder("a", "second")}


def replace_size(size: int) -> InstancePool:
    return POOL._replace(size=size)


def test_a_pod_that_is_over_has_no_instance_although_it_exists() -> None:
    over = replace(pod("a", leaving=True), is_over=True)
    assert assigned(replace_size(1), held(o0="a"), [over, pod("b")]) == held(o0="b")
    assert not scaled_away(replace_size(0), held(o0="a"), [over])


def test_an_instance_stays_until_its_successor_comes() -> None:
    assert assigned(POOL, held(o0="a", o1="b", o2="c"), [pod("a"), pod("c")]) == held(o0="a", o1="b", o2="c")


def test_a_group_made_smaller_gives_up_the_instances_of_those_that_leave() -> None:
    smaller = replace_size(2)
    holders = held(o0="a", o1="b", o2="c")
    leaving = [pod("a"), pod("b", leaving=True), pod("c")]
    assert scaled_away(smaller, holders, leaving) == [leaving[1]]
    assert assigned(smaller, holders, leaving) == holders, "it drains"
    assert assigned(smaller, holders, [pod("a"), pod("c")]) == held(o0="a", o2="c")
    assert assigned(smaller, held(o0="a", o2="c"), [pod("a"), pod("c"), pod("d")]) == held(o0="a", o2="c")
    assert assigned(POOL, held(o0="a", o2="c"), [pod("a"), pod("c"), pod("d")]) == held(
        o0="a", o1="d", o2="c"
    )


def test_nobody_is_scaled_away_before_the_others_have_their_instances() -> None:
    smaller, holders = replace_size(2), held(o0="a", o1="b")
    assert not scaled_away(smaller, holders, [pod("a", leaving=True), pod("b")])
    assert not scaled_away(smaller, holders, [pod("a", leaving=True), pod("b"), pod("c", connected=False)])


def test_a_suspended_workload_keeps_no_instances() -> None:
    assert assigned(replace_size(0), held(o0="a", o1="b"), []) == {}


@pytest.mark.parametrize("seed", range(200))
def test_over_any_history_no_instance_has_two_holders_and_none_is_taken_away(seed: int) -> None:
    chance = random.Random(seed)
    pool, holders, pods, born = POOL, dict[str, Holder](), list[PodSeen](), 0
    for _ in range(40):
        pods, born = changed(chance, pods, born)
        pool = pool._replace(size=chance.choice([pool.size] * 9 + [chance.randint(0, 5)]))
        before, holders = holders, dict(assigned(pool, holders, pods))
        running = {each.holder for each in pods if not each.is_over}
        of_running = [holder for holder in holders.values() if holder in running]
        assert len(set(of_running)) == len(of_running), "one pod, one instance"
        for name, holder in before.items():
            assert holder not in running or holders.get(name) == holder, "taken away from a pod that runs"
        kept = sum(holder in running for holder in before.values())
        assert len(of_running) <= max(pool.size, kept), "more members than wanted"
        assert len(holders) <= max(pool.size, len(of_running))
        assert assigned(pool, holders, pods) == holders, "a second look changes nothing"


def changed(chance: random.Random, pods: Sequence[PodSeen], born: int) -> tuple[list[PodSeen], int]:
    """A step of a cluster: pods come, connect, leave, end and vanish."""
    after = []
    for each in pods:
        match chance.randrange(8):
            case 0:
                after.append(replace(each, is_leaving=True))
            case 1:
                after.append(replace(each, is_over=True))
            case 2 if each.is_over or each.is_leaving:
                continue
            case 3:
                after.append(replace(each, is_connected=not each.is_connected))
            case _:
                after.append(each)
    for _ in range(chance.randrange(3)):
        born += 1
        after.append(pod(f"p{born}", connected=chance.random() < 0.7))
    return after, born
