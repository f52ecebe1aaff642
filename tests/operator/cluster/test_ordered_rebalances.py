"""A group with a hot partition rebalances by an order to the member that leads it, and the number of pods stays."""

from typing import Any

import pytest

from rota_operator.autoscaling.decision import Reason
from tests.operator.cluster.scaled_world import ScaledWorld

# As many samples as a decision needs: the first one has no rate.
SAMPLES = 4
BY_LOAD = {"strategy": "load-aware-sticky"}
ORDER = "the autoscaler moves other partitions away from the owner of a hot one: orders-0"


def skewed(**autoscaling: Any) -> ScaledWorld:  # noqa: ANN401
    """Two pods with two partitions each, of which one has more load than a pod processes."""
    world = ScaledWorld(2, minReplicaCount=2, **autoscaling)
    world.arrival_rate, world.hot_rate = 4.0, 12.0
    return world


def test_the_pod_whose_member_leads_gets_the_order_and_the_number_stays() -> None:
    world = skewed(minChangeIntervalSeconds=60)
    first, second = world.pods
    world.leaders = (second,)

    async def story() -> None:
        await world.poll(SAMPLES, **BY_LOAD)
        assert world.acts == [f"rebalance {second}: {ORDER}"]
        record = world.autoscaler.state.scaling
        assert (record.decisions[0].reason, record.recommendation) == (Reason.LOAD_SKEWED, 2)
        assert (record.last_rebalance_time is None, record.last_scale_time) == (False, None)
        (message,) = world.said("RebalanceOrdered")
        assert message.startswith("ordered a rebalance of group shop.orders: LoadSkewed: ")
        world.owners = [first, second, second, second]
        await world.poll(SAMPLES + 6, **BY_LOAD)
        assert len(world.acts) == 1, "the hot partition has no neighbours"
        assert world.autoscaler.state.scaling.decisions[0].reason == Reason.HOT_PARTITIONS

    world.run(story)


def test_all_pods_get_the_order_if_none_says_that_its_member_leads() -> None:
    world = skewed()
    first, second = world.pods
    world.rebalance_errors = {first: "unknown order: update the sidecar"}

    async def story() -> None:
        await world.poll(SAMPLES, **BY_LOAD)
        assert world.acts == [f"rebalance {pod}: {ORDER}" for pod in (first, second)]
        assert world.said("RebalanceFailed") == []

    world.run(story)


def test_an_order_that_no_pod_executes_is_said_and_counts_as_a_change() -> None:
    world = skewed(minChangeIntervalSeconds=60)
    first = next(iter(world.pods))
    world.rebalance_errors = dict.fromkeys(world.pods, "unknown order: update the sidecar")

    async def story() -> None:
        await world.poll(SAMPLES + 2, **BY_LOAD)
        assert len(world.acts) == len(world.pods)
        assert world.said("RebalanceFailed") == [
            f"group shop.orders does not rebalance: {first} and 1 more: unknown order: update the sidecar"
        ]
        assert world.autoscaler.state.scaling.decisions[0].reason == Reason.HOT_PARTITIONS
        assert world.autoscaler.state.scaling.last_rebalance_time is not None

    world.run(story)


def test_a_rebalance_that_moves_nothing_is_not_repeated_also_by_the_next_leader() -> None:
    world = skewed()
    world.leaders = (next(iter(world.pods)),)

    async def story() -> None:
        await world.poll(SAMPLES, **BY_LOAD)
        await world.poll(4, **BY_LOAD)
        assert len(world.acts) == 1
        (noted,) = world.autoscaler.state.scaling.ineffective
        assert (noted.from_replicas, noted.to_replicas) == (2, 2)
        world.start(world.autoscaler.state.scaling)
        await world.poll(SAMPLES, **BY_LOAD)
        assert len(world.acts) == 1
        assert "and a rebalance has moved nothing" in world.autoscaler.state.scaling.decisions[0].message

    world.run(story)


def test_the_next_leader_waits_from_the_last_rebalance_of_the_one_before() -> None:
    world = skewed(minChangeIntervalSeconds=300)
    world.leaders = (next(iter(world.pods)),)

    async def story() -> None:
        await world.poll(SAMPLES, **BY_LOAD)
        world.start(world.autoscaler.state.scaling)
        await world.poll(SAMPLES, **BY_LOAD)
        assert len(world.acts) == 1
        assert world.autoscaler.state.scaling.decisions[0].reason == Reason.CHANGE_INTERVAL

    world.run(story)


def test_a_dry_run_orders_nothing() -> None:
    world = skewed(dryRun=True)

    async def story() -> None:
        await world.poll(SAMPLES + 2, **BY_LOAD)
        assert world.acts == []
        (message,) = world.said("ScalingRecommended")
        assert message.startswith("would let the group rebalance (dry run): LoadSkewed: ")

    world.run(story)


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range", ""])
def test_a_strategy_that_looks_at_no_load_is_not_asked_to_rebalance(strategy: str) -> None:
    world = skewed()

    async def story() -> None:
        await world.poll(SAMPLES + 2, strategy=strategy)
        assert world.acts == []

    world.run(story)
