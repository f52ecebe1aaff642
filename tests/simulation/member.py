"""A simulated member: joins, syncs, heartbeats, works and commits; dies, pauses, comes back. A client of the protocol."""

import asyncio
from collections.abc import Sequence

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.members import TOPIC, assignment, topic_offsets
from tests.simulation.world import GROUP, Connection, World, join_request

SESSION_MS = 2_000
HEARTBEAT_S = 0.5
REQUEST_S = 4.0
JOIN_S = 3 * SESSION_MS / 1000 + 2
BACKOFF_S = 0.2


class Rejoin(Exception):
    """The member has to join again; with its id, unless `forget`."""

    def __init__(self, *, forget: bool = False) -> None:
        super().__init__()
        self.forget = forget


class SimulatedMember:
    """One process."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.instance = f"instance-{number}" if number < world.plan.statics else None
        self.member_id = ""
        self.generation = -1
        self.owned: dict[int, int] = {}  # partition -> next offset
        self.stable = False
        self.paused_until_s = 0.0
        self.connection = Connection(world)

    async def live(self) -> None:
        """Be a member until cancelled, or fenced."""
        while True:
            try:
                await self._join()
                await self._work()
            except Rejoin as reason:
                if reason.forget:
                    self.member_id, self.generation = "", -1
            except (ConnectionError, TimeoutError):
                await asyncio.sleep(BACKOFF_S * (1 + self.world.chance.random()))
                self.connection.close()
                self.connection = Connection(self.world)

    async def leave(self) -> None:
        """Go on purpose."""
        leaving = pb.LeavingMember(member_id=self.member_id, group_instance_id=self.instance)
        request = pb.LeaveGroupRequest(group_id=GROUP, members=[leaving])
        await self.connection.call(request, REQUEST_S)

    async def _pause(self) -> None:
        """A stopped process does nothing, and does not know that time went by."""
        await asyncio.sleep(max(self.paused_until_s - asyncio.get_running_loop().time(), 0))

    async def _join(self) -> None:
        self.stable = False
        reply = await self.connection.call(join_request(self.member_id, self.instance, SESSION_MS), JOIN_S)
        assert isinstance(reply, pb.JoinGroupResponse)
        await self._pause()
        if reply.error_code == pb.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            raise Rejoin
        self._obey(reply.error_code)
        self.member_id, self.generation = reply.member_id, reply.generation_id
        if reply.skip_assignment:
            self.world.history.situations["a static leader came back"] += 1
        members = [member.member_id for member in reply.members] if not reply.skip_assignment else []
        await self._sync(members)

    async def _sync(self, members: Sequence[str]) -> None:
        parts: dict[str, list[int]] = {member_id: [] for member_id in members}
        for partition in range(self.world.plan.partitions):
            if members:
                parts[members[partition % len(members)]].append(partition)
        request = pb.SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                pb.Assignment(member_id=member_id, assignment=assignment(*partitions))
                for member_id, partitions in parts.items()
            ],
        )
        reply = await self.connection.call(request, REQUEST_S)
        assert isinstance(reply, pb.SyncGroupResponse)
        await self._pause()
        self._obey(reply.error_code)
        mine = {
            partition for partition in range(self.world.plan.partitions) if is_in(partition, reply.assignment)
        }
        self.world.history.assigned(self.generation, self.member_id, mine)
        self.owned = await self._positions(sorted(mine))
        self.stable = True

    async def _positions(self, partitions: Sequence[int]) -> dict[int, int]:
        request = pb.FetchOffsetsRequest(
            group_id=GROUP, topics=[pb.TopicPartitions(name=TOPIC, partitions=partitions)]
        )
        reply = await self.connection.call(request, REQUEST_S)
        assert isinstance(reply, pb.FetchOffsetsResponse)
        self._obey(reply.error_code)
        return {each.index: max(each.offset, 0) for topic in reply.topics for each in topic.partitions}

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S * (0.5 + self.world.chance.random()))
            await self._pause()
            await self._commit()
            request = pb.HeartbeatRequest(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
            )
            reply = await self.connection.call(request, REQUEST_S)
            assert isinstance(reply, pb.HeartbeatResponse)
            self._obey(reply.error_code)

    async def _commit(self) -> None:
        offsets = {partition: offset + 1 for partition, offset in self.owned.items()}
        if not offsets:
            return
        for partition, offset in offsets.items():
            self.world.history.committing(partition, offset)
        request = pb.CommitOffsetsRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[topic_offsets(offsets)],
        )
        reply = await self.connection.call(request, REQUEST_S)
        assert isinstance(reply, pb.CommitOffsetsResponse)
        refusals = set()
        for each in reply.topics[0].partitions:
            if each.error_code == pb.NONE:
                self.world.history.committed(each.index, offsets[each.index], self.world.written)
                self.owned[each.index] = offsets[each.index]
            else:
                refusals.add(each.error_code)
        for refusal in refusals:
            self.world.history.situations[f"commit refused: {pb.ErrorCode.Name(refusal)}"] += 1
        self._obey(next(iter(sorted(refusals)), pb.NONE))

    def _obey(self, error: pb.ErrorCode.ValueType) -> None:
        """What a client does about an error."""
        match error:
            case pb.NONE:
                return
            case pb.REBALANCE_IN_PROGRESS:
                raise Rejoin
            case pb.ILLEGAL_GENERATION:
                self.generation = -1
                raise Rejoin
            case pb.UNKNOWN_MEMBER_ID | pb.FENCED_INSTANCE_ID:
                raise Rejoin(forget=True)
            case pb.COORDINATOR_LOAD_IN_PROGRESS | pb.COORDINATOR_NOT_AVAILABLE | pb.NOT_COORDINATOR:
                raise ConnectionError("not now")
            case _:
                raise AssertionError(f"no client expects {pb.ErrorCode.Name(error)} here")


def is_in(partition: int, data: bytes) -> bool:
    """Whether an assignment names a partition."""
    from rota_coordinator.group.consumer_protocol import assigned_partitions

    return any(each.partition == partition for each in assigned_partitions(data) or ())
