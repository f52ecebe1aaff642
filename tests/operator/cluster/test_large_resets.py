"""A reset of as many partitions as a group may have is a plan in several ConfigMaps; of more it is refused before anything changes."""

import asyncio
import json
import threading
from typing import Any

from rota_operator.cluster.kinds import CONFIG_MAP
from rota_operator.overview.assignment import Partition
from rota_operator.resets.documents import PARTS_MAX
from rota_operator.resets.plan import PARTITIONS_MAX
from rota_operator.resets.targets import LogRange
from tests.operator.cluster.reset_world import KEY, World

PLAN = "orders-reset-replay-1"
# Of a ConfigMap, by the API server.
CONFIG_MAP_BYTES_MAX = 1 << 20
# Of the status of a ConsumerGroup, beside a plan of any size.
RECORD_BYTES_MAX = 4_096


def world_of(partitions: int, topics: int) -> World:
    """A group without members, with a committed offset in each partition, whose reset makes a plan and executes it."""
    each = -(-partitions // topics)
    everything = [Partition(f"orders-{number // each:06d}", number % each) for number in range(partitions)]
    return World(
        {"requestId": "replay-1", "dryRun": False, "to": {"earliest": True}},
        ranges=dict.fromkeys(everything, LogRange(10, 100)),
        committed=dict.fromkeys(everything, 50),
    )


def run(world: World) -> str:
    world.sidecars = {}
    return asyncio.run(world.run())


def parts_of(world: World, name: str) -> list[Any]:
    """The data of a plan's ConfigMaps."""
    count = int(world.config_map(name)["part"].partition("/")[2])
    return [world.config_map(name if part == 1 else f"{name}-{part}") for part in range(1, count + 1)]


def test_a_reset_of_200_000_partitions_is_planned_written_read_and_executed() -> None:
    world = world_of(PARTITIONS_MAX, topics=20_000)
    assert run(world) == "Completed"
    assert set(world.committed.values()) == {10}
    assert (world.record["partitions"], world.record["repeatedRecords"]) == (
        PARTITIONS_MAX,
        PARTITIONS_MAX * 40,
    )
    for name in (PLAN, f"{PLAN}-undo"):
        parts = parts_of(world, name)
        assert 1 < len(parts) <= PARTS_MAX
        assert max(sum(map(len, each.values())) for each in parts) < CONFIG_MAP_BYTES_MAX
    assert len(json.dumps(world.record)) < RECORD_BYTES_MAX
    assert [each.reason for each in world.events] == ["OffsetResetStarted", "OffsetResetCompleted"]


def test_a_reset_of_more_partitions_is_refused_with_the_limit_and_what_to_do() -> None:
    world = world_of(PARTITIONS_MAX + 1, topics=1)
    assert run(world) == "Rejected"
    said = "the reset has 200001 partitions, more than 200000; name fewer topics in spec.offsets.reset.topics"
    assert world.record["message"] == said
    assert [(each.reason, each.message) for each in world.events] == [
        ("OffsetResetRejected", f"reset replay-1: {said}")
    ]
    assert set(world.committed.values()) == {50}
    assert [name for kind, name in world.objects.held if kind == CONFIG_MAP.kind] == ["rota-orders"]


def test_a_plan_with_many_topics_has_the_ids_of_each_part_in_that_part() -> None:
    # All ids in each ConfigMap would be larger than a ConfigMap may be.
    world = world_of(30_000, topics=30_000)
    assert run(world) == "Completed"
    parts = parts_of(world, PLAN)
    ids = [json.loads(each["topicIds"]) for each in parts]
    assert len(parts) > 1
    assert sum(map(len, ids)) == 30_000
    assert all(each["topicIds"].count(":") == each["plan.csv"].count("\n") - 1 for each in parts)


def test_a_part_that_is_missing_is_named() -> None:
    world = world_of(30_000, topics=10)
    # The plan is written by one life of the operator, and read by the next one.
    world.sidecars = {}
    asyncio.run(world.resets.step(KEY))
    assert world.record["phase"] == "Suspending"
    del world.objects.held[CONFIG_MAP.kind, f"{PLAN}-2"]
    world.resets = world.new_operator()
    assert asyncio.run(world.run()) == "Failed"
    assert f"ConfigMap {PLAN}-2 with the plan does not exist" in world.record["message"]
    assert set(world.committed.values()) == {50}


def test_the_loop_of_the_leader_formats_no_plan() -> None:
    """Its Lease is renewed meanwhile."""
    world = world_of(4, topics=1)
    threads = set()

    def timestamp(at_ms: int) -> str:
        threads.add(threading.current_thread())
        return str(at_ms)

    world.sidecars = {}
    world.resets = world.new_operator(timestamp)
    assert asyncio.run(world.run()) == "Completed"
    assert threads
    assert threading.main_thread() not in threads
