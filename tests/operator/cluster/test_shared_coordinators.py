"""Watches of groups at several coordinators on one PostgreSQL: the operator knows one address, and follows each group to its coordinator."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import grpc
import pytest

from rota_operator.cluster.channels import Channels
from rota_operator.cluster.groups import GroupCallbacks, GroupWatches
from rota_operator.cluster.queues import Key
from rota_operator.cluster.watched import Watched
from rota_operator.engines import rota
from rota_operator.overview.offset_lookups import QUERY_INTERVAL_MS
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from rota_proto.fleet.v1 import fleet_pb2
from tests.coordinator.fleet import Fleet, until

pytestmark = pytest.mark.process
# So many that each coordinator serves some of them.
GROUPS = 20
WITHIN_S = 60


@pytest.fixture
def fleet(tmp_path: Path, database: str) -> Iterator[Fleet]:
    with Fleet(tmp_path, database, "ab") as fleet:
        yield fleet


class WatchedGroups:
    """Groups that are watched through the first coordinator."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.address = fleet.addresses["a"]
        self.keys = [Key("shop", f"orders-{number}") for number in range(GROUPS)]
        callbacks = GroupCallbacks(self._on_view, self._on_view, lambda _: None, self._on_exception)
        self.groups = GroupWatches(
            Channels(lambda: None, insecure=True), callbacks, lambda: time.time_ns() // 1_000_000
        )
        # Groups that were unknown after they had been known.
        self.lost: set[Key] = set()
        self._known: set[Key] = set()
        self._changed = asyncio.Event()

    def watch(self) -> None:
        for key in self.keys:
            self.groups.add(
                key,
                Watched(
                    f"shop.{key.name}", self.address, has_log=False, topics=("orders",), topic_pattern="",
                    initial_offset="earliest", read_committed=False,
                ),
            )  # fmt: skip

    def _on_view(self, key: Key) -> None:
        if self.groups.members(key) is not None:
            self._known.add(key)
        elif key in self._known:
            self.lost.add(key)
        self._changed.set()

    def _on_exception(self, error: Exception) -> None:
        raise AssertionError from error

    async def all_are_known(self) -> None:
        while any(self.groups.members(key) is None for key in self.keys):
            self._changed.clear()
            await self._changed.wait()

    def served_by(self, name: str) -> list[Key]:
        """Groups of one coordinator, as the first one says."""
        by_id = {f"shop.{key.name}": key for key in self.keys}
        with grpc.insecure_channel(self.address) as channel:
            request = pb.FindCoordinatorRequest(group_ids=list(by_id))
            found = CoordinatorStub(channel).FindCoordinator(request, timeout=WITHIN_S).coordinators
        return [by_id[each.group_id] for each in found if each.address == self.fleet.addresses[name]]


def play(fleet: Fleet, story: Callable[[WatchedGroups], Awaitable[None]]) -> None:
    async def body() -> None:
        await until(fleet.is_shared_equally)
        watching = WatchedGroups(fleet)
        try:
            async with asyncio.timeout(WITHIN_S):
                watching.watch()
                await watching.all_are_known()
                await story(watching)
        finally:
            await watching.groups.close()

    asyncio.run(body())


def joined(story: WatchedGroups, key: Key) -> int:
    """Let a member join at the second coordinator; returns the error."""
    request = pb.JoinGroupRequest(
        group_id=f"shop.{key.name}", group_instance_id="a", session_timeout_ms=60_000, rebalance_timeout_ms=60_000,
        protocol_type="consumer", protocols=[pb.Protocol(name="range")],
    )  # fmt: skip
    with grpc.insecure_channel(story.fleet.addresses["b"]) as channel:
        return CoordinatorStub(channel).JoinGroup(request, timeout=WITHIN_S).error_code


async def member_is_seen(watching: WatchedGroups) -> None:
    """Let a member join a group of the second coordinator; the operator sees it, and has lost no group."""
    key = watching.served_by("b")[0]
    assert await asyncio.to_thread(joined, watching, key) == pb.NONE
    while watching.groups.members(key) != 1:
        await asyncio.sleep(0.05)
    assert watching.lost == set()


def test_groups_of_every_coordinator_are_described_and_followed(fleet: Fleet) -> None:
    async def story(watching: WatchedGroups) -> None:
        await member_is_seen(watching)

    play(fleet, story)


def test_groups_at_another_coordinator_get_initial_offsets_and_are_deleted(fleet: Fleet) -> None:
    async def story(watching: WatchedGroups) -> None:
        key = watching.served_by("b")[0]
        for turn, offset in enumerate((None, 5, 9)):
            query = watching.groups.next_query(key, ["pod-0"], turn * QUERY_INTERVAL_MS)
            assert query is not None
            found = [] if offset is None else [fleet_pb2.PartitionOffset(topic="orders", offset=offset)]
            answer = fleet_pb2.OrderAnswer(order_id=1, offsets=found)
            watching.groups.query_answered(key, query, answer, turn * QUERY_INTERVAL_MS)
        await watching.groups.commit_initial_offsets(key)
        with grpc.insecure_channel(fleet.addresses["b"]) as channel:
            request = pb.FetchOffsetsRequest(group_id=f"shop.{key.name}", all=True)
            (topic,) = CoordinatorStub(channel).FetchOffsets(request, timeout=WITHIN_S).topics
        assert [each.offset for each in topic.partitions] == [5]
        await watching.groups.delete_group(key)
        await watching.groups.delete_group(key)

    play(fleet, story)


def test_groups_that_are_handed_over_stay_known(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    # However busy the machine is.
    monkeypatch.setattr(rota, "MOVE_S_MAX", WITHIN_S)

    async def story(watching: WatchedGroups) -> None:
        moved = watching.served_by("b")
        assert moved
        await asyncio.to_thread(fleet.members["b"].stop)
        await watching.all_are_known()
        # Their shares come back to it.
        await asyncio.to_thread(fleet.members["b"].start)
        await until(fleet.is_shared_equally)
        await member_is_seen(watching)

    play(fleet, story)


def test_groups_of_a_coordinator_that_dies_are_unknown_and_found_again(fleet: Fleet) -> None:
    async def story(watching: WatchedGroups) -> None:
        moved = watching.served_by("b")
        fleet.members["b"].kill()
        while watching.lost != set(moved):
            await asyncio.sleep(0.05)
        await watching.all_are_known()

    play(fleet, story)
