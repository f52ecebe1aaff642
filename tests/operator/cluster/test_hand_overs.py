"""Pods that end and wait for a successor are ordered to hand their instances over, whichever operator leads."""

from collections.abc import Callable

import pytest

from rota_operator.reconcile.instances import REPLACEMENT_MS
from tests.operator.cluster.test_instance_orders import KEY, RESOURCE, Operator, World, played, pool, settled

pytestmark = pytest.mark.unit
LATE_S = REPLACEMENT_MS / 1000


def test_a_deleted_pod_serves_until_its_successor_is_ready() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        world.end_slowly("a")
        world.start("c", online=False)
        world.now_s += LATE_S
        await operator.look()
        world.start("c")
        world.unready.add("c")
        await operator.look()
        assert world.handed_over == {}
        world.unready.clear()
        await operator.look()
        assert world.handed_over == {"a": True}
        assert world.instances == {"a": "orders-0", "b": "orders-1"}, "it drains first"
        world.give_up("a")
        await operator.look()
        assert world.instances == {"b": "orders-1", "c": "orders-0"}
        assert world.drained == world.removed == []
        world.end("a")
        await operator.look()
        world.requests.clear()
        await operator.look()
        assert world.requests == [], "at rest"

    played(story)


def test_a_pod_without_a_replacement_is_ordered_to_drain() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        world.end_slowly("a")
        await operator.look()
        assert world.handed_over == {}, "its controller may create another one"
        world.now_s += LATE_S
        await operator.look()
        assert world.handed_over == {"a": False}

    played(story)


def test_a_pod_that_is_scaled_away_is_ordered_to_leave_instead() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b", "c")
        operator.orders.offer(KEY, RESOURCE, pool(2))
        world.end_slowly("a")
        await operator.look()
        assert (world.drained, world.handed_over) == (["a"], {})

    played(story)


def test_an_order_that_does_not_arrive_is_sent_again_by_the_next_leader_too() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        world.end_slowly("a")
        world.start("c")
        world.deaf.add("a")
        await operator.look()
        assert world.handed_over == {}
        world.deaf.clear()
        second = life()
        second.orders.offer(KEY, RESOURCE, pool(2))
        await second.look()
        assert world.handed_over == {"a": True}

    played(story)


def test_a_pod_of_a_group_without_instances_is_ordered_to_drain_at_once() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        operator.orders.offer(KEY, RESOURCE, None)
        world.end_slowly("a")
        await operator.look()
        assert world.handed_over == {"a": False}

    played(story)
