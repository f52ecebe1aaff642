"""
A member of a group on Rota's coordinator, driven by hand: for producers, which take offsets and generation of whatever
member.

It joins, heartbeats in the background and says when the group rebalances; when to join again is up to the test.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from rota.metadata import GroupMetadata
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance import members
from tests.conformance.driver import DEFAULT
from tests.conformance.members import answer
from tests.conformance.server import ServerDriver

Partition = tuple[str, int]
# From the member ids, the leader's first, to the partitions of each.
Assignor = Callable[[Sequence[str]], Mapping[str, Collection[Partition]]]

SESSION_MS = 6_000
REBALANCE_MS = 20_000
# Joining waits for all other members.
JOIN_S = 60
# Nobody says when a transaction has ended.
POLL_S = 0.02
# What a member has only to join again for.
AGAIN = {pb.REBALANCE_IN_PROGRESS, pb.ILLEGAL_GENERATION, pb.NOT_COORDINATOR, pb.COORDINATOR_LOAD_IN_PROGRESS}


def in_turn(partitions: Collection[Partition]) -> Assignor:
    """An assignor that deals the partitions out like cards."""

    def assign(member_ids: Sequence[str]) -> dict[str, list[Partition]]:
        dealt = sorted(partitions)
        return {
            member_id: dealt[number :: len(member_ids)] for number, member_id in enumerate(sorted(member_ids))
        }

    return assign


class GroupMember:
    """One member. `partitions` and `metadata` are those of the generation that it joined last."""

    def __init__(self, driver: ServerDriver, group_id: str, assign: Assignor) -> None:
        self._member = members.Member(
            driver,
            group_id,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            protocols={"by-hand": members.subscription()},
        )
        self._driver = driver
        self._assign = assign
        self._heartbeat_s = SESSION_MS / 3 / 1000
        self._heartbeats: asyncio.Task[None] | None = None
        self._incarnation = -1
        self.partitions: tuple[Partition, ...] = ()
        # Set when the group rebalances, or does not know this member any more: join again.
        self.rebalancing = asyncio.Event()

    @property
    def metadata(self) -> GroupMetadata:
        return GroupMetadata(
            group_id=self._member.group,
            incarnation=self._incarnation,
            generation_id=self._member.generation,
            member_id=self._member.member_id,
        )

    async def join(self) -> tuple[Partition, ...]:
        """Join the group, or its next generation, and stay in it; the partitions of this member."""
        await self._stop_heartbeats()
        while not await self._join_once():
            pass
        self.rebalancing.clear()
        self._heartbeats = asyncio.create_task(self._stay())
        return self.partitions

    async def fetch(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """The group's offsets, of partitions that have one. It waits for open transactions."""
        request = pb.FetchOffsetsRequest(group_id=self._member.group, require_stable=True)
        for topic, indexes in _by_topic(partitions).items():
            request.topics.add(name=topic, partitions=indexes)
        async with asyncio.timeout(JOIN_S):
            while True:
                reply = await answer(self._driver.send(request), pb.FetchOffsetsResponse)
                found = {
                    (topic.name, each.index): each for topic in reply.topics for each in topic.partitions
                }
                errors = {each.error_code for each in found.values()}
                assert errors <= {pb.NONE, pb.UNSTABLE_OFFSET_COMMIT}, reply
                if pb.UNSTABLE_OFFSET_COMMIT not in errors:
                    return {partition: each.offset for partition, each in found.items() if each.offset >= 0}
                await self._driver.pass_time(POLL_S)

    async def stop(self) -> None:
        """Fall silent, as a process that dies."""
        await self._stop_heartbeats()

    async def leave(self) -> None:
        """Leave the group."""
        await self._stop_heartbeats()
        assert await self._member.leave() == pb.NONE

    async def _join_once(self) -> bool:
        """Join; return True if the member is in a generation now, False if it has to try again."""
        member = self._member
        joined = await answer(member.send_join(), pb.JoinGroupResponse, JOIN_S)
        if joined.error_code == pb.MEMBER_ID_REQUIRED:
            member.member_id = joined.member_id
            return False
        if not self._is_in(joined.error_code):
            return False
        member.accept(joined)
        parts = await self._decide() if member.leads and not joined.skip_assignment else None
        synced = await answer(member.send_sync(parts), pb.SyncGroupResponse, JOIN_S)
        if not self._is_in(synced.error_code):
            return False
        self._incarnation, self.partitions = unpacked(synced.assignment)
        return True

    async def _decide(self) -> dict[str, bytes]:
        """The leader's part: look up the group's incarnation, and give it to all members."""
        request = admin.DescribeGroupsRequest(group_ids=[self._member.group])
        described = (await answer(self._driver.send(request), admin.DescribeGroupsResponse)).groups[0]
        # Of another generation: the group has gone on, and the sync will say so.
        incarnation = described.incarnation
        others = [each.member_id for each in self._member.entries if each.member_id != self._member.member_id]
        assigned = self._assign([self._member.member_id, *others])
        return {member_id: packed(incarnation, partitions) for member_id, partitions in assigned.items()}

    def _is_in(self, error_code: int) -> bool:
        if error_code == pb.UNKNOWN_MEMBER_ID:
            self._member.member_id = ""
        assert error_code in {pb.NONE, pb.UNKNOWN_MEMBER_ID, *AGAIN}, pb.ErrorCode.Name(error_code)  # type: ignore[arg-type]
        return error_code == pb.NONE

    async def _stay(self) -> None:
        """Heartbeat until the group rebalances."""
        while not self.rebalancing.is_set():
            if not await self._is_settled() or self._is_noticed():
                self.rebalancing.set()
            else:
                await self._driver.pass_time(self._heartbeat_s)

    async def _is_settled(self) -> bool:
        try:
            return await self._member.heartbeat() == pb.NONE
        except ConnectionError:
            # Whoever joins next learns that the coordinator is gone.
            return False

    def _is_noticed(self) -> bool:
        return any(
            (notice.member_id, notice.generation_id) == (self._member.member_id, self._member.generation)
            for notice in self._driver.notices
        )

    async def _stop_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.wait([self._heartbeats])
            if not self._heartbeats.cancelled():
                self._heartbeats.result()
            self._heartbeats = None


def packed(incarnation: int, partitions: Collection[Partition]) -> bytes:
    """Kafka's assignment, version 0, with the incarnation of the group as its user data."""
    content = [struct.pack(">hi", 0, len(topics := _by_topic(partitions)))]
    for topic, indexes in topics.items():
        name = topic.encode()
        content.append(struct.pack(">h", len(name)) + name + struct.pack(">i", len(indexes)))
        content.append(struct.pack(f">{len(indexes)}i", *indexes))
    return b"".join(content) + struct.pack(">iq", 8, incarnation)


def unpacked(assignment: bytes) -> tuple[int, tuple[Partition, ...]]:
    """The incarnation and the partitions; -1 and none for a member that the leader left out."""
    if not assignment:
        return -1, ()
    partitions: list[Partition] = []
    _, topics = struct.unpack_from(">hi", assignment)
    position = 6
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", assignment, position)
        topic = assignment[position + 2 : position + 2 + length].decode()
        (count,) = struct.unpack_from(">i", assignment, position + 2 + length)
        position += 6 + length
        partitions += [(topic, index) for index in struct.unpack_from(f">{count}i", assignment, position)]
        position += 4 * count
    (incarnation,) = struct.unpack_from(">q", assignment, position + 4)
    return incarnation, tuple(partitions)


def _by_topic(partitions: Collection[Partition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


@asynccontextmanager
async def member(address: str, group_id: str, assign: Assignor) -> AsyncIterator[GroupMember]:
    """A member on a stream of its own, which falls silent with the block."""
    driver = ServerDriver(address, DEFAULT)
    by_hand = GroupMember(driver, group_id, assign)
    try:
        yield by_hand
    finally:
        await by_hand.stop()
        await driver.close()
