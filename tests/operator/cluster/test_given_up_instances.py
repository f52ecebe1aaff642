"""Instances that their pods have given up while they drain: they are passed on before the pods end."""

from collections.abc import Callable

import pytest

from tests.operator.cluster.test_instance_orders import KEY, RESOURCE, Operator, World, played, pool, settled

pytestmark = pytest.mark.unit


def test_the_surplus_pod_succeeds_one_that_has_given_its_instance_up_before_it_ends() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        world.start("c")
        await operator.look()
        world.give_up("a")
        await operator.look()
        assert world.instances == {"b": "orders-1", "c": "orders-0"}
        assert world.holders == {"orders-0": "c", "orders-1": "b"}
        # The next leader knows it from the reports, and gives it back to nobody.
        second = life()
        second.orders.offer(KEY, RESOURCE, pool(2))
        await second.look()
        assert world.instances == {"b": "orders-1", "c": "orders-0"}
        assert world.drained == world.removed == []
        world.end("a")
        await second.look()
        assert world.holders == {"orders-0": "c", "orders-1": "b"}

    played(story)


def test_an_instance_that_was_given_up_waits_for_the_pod_that_is_still_to_start() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        world.give_up("a")
        await operator.look()
        assert world.instances == {"b": "orders-1"}, "the one that gave it up is not told to take it again"
        assert world.removed == [], "its successor takes the place"
        world.start("c")
        await operator.look()
        assert world.instances == {"b": "orders-1", "c": "orders-0"}

    played(story)


def test_a_pod_whose_drain_expires_after_it_gave_its_instance_up_gets_what_is_free() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        world.given_up["a"] = world.instances.pop("a")
        await operator.look()
        assert world.instances == {"b": "orders-1"}
        del world.given_up["a"]
        await operator.look()
        assert world.instances == {"a": "orders-0", "b": "orders-1"}

    played(story)


def test_a_pod_whose_drain_expires_after_another_has_succeeded_it_waits() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b")
        world.start("c")
        world.given_up["a"] = world.instances.pop("a")
        await operator.look()
        assert world.instances == {"b": "orders-1", "c": "orders-0"}
        del world.given_up["a"]
        await operator.look()
        assert world.instances == {"b": "orders-1", "c": "orders-0"}

    played(story)


def test_a_pod_that_gave_its_instance_up_and_has_no_successor_is_removed_by_another_before_it_ends() -> None:
    async def story(world: World, life: Callable[[], Operator]) -> None:
        operator = await settled(world, life, "a", "b", "c")
        operator.orders.offer(KEY, RESOURCE, pool(2))
        world.give_up("a")
        await operator.look()
        assert world.removed == ["orders-0"]
        assert world.drained == [], "it is not in the group any more"
        await operator.look()
        assert world.holders == {"orders-1": "b", "orders-2": "c"}
        world.end("a")
        await operator.look()
        assert world.removed == ["orders-0"]

    played(story)
