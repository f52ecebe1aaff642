"""A simulated member: finds its coordinator, joins, syncs, heartbeats, works and commits. A client of the protocol."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from google.protobuf.message import Message

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.members import TOPIC, assignment, subscription
from tests.simulation.history import Commit, partitions_of
from tests.simulation.loop import Process
from tests.simulation.network import Connection, Notice, Request
from tests.simulation.plan import SESSION_MS, SESSION_S
from tests.simulation.world import World

HEARTBEAT_S = 1.0
REQUEST_S = 4.0
REBALANCE_MS = 2 * SESSION_MS
JOIN_S = REBALANCE_MS / 1000 + 2
BACKOFF_S = 0.2
Reply = TypeVar("Reply", bound=Message)
LOST = (pb.COORDINATOR_LOAD_IN_PROGRESS, pb.COORDINATOR_NOT_AVAILABLE, pb.NOT_COORDINATOR)


class Rejoin(Exception):
    """The member has to join again; with its id, unless `forget`."""

    def __init__(self, *, forget: bool = False) -> None:
        super().__init__()
        self.forget = forget


class SimulatedMember:
    """One process."""

    def __init__(self, world: World, group_id: str, name: str, instance: str | None) -> None:
        self.world = world
        self.group_id = group_id
        self.history = world.histories[group_id]
        self.name = name
        self.instance = instance
        self.process = Process(world.loop)
        self.member_id = ""
        self.generation = -1
        self.stable = False
        self.owned: dict[int, int] = {}  # partition -> next offset
        # What it had before, and when: now and then it still commits that, a verdict that comes late.
        self.lost: dict[int, int] = {}
        self.lost_with = -1
        self.version = 0  # of its subscription
        self._connection: Connection | None = None
        self._committing: asyncio.Future[Message] | None = None
        self._refusal: pb.ErrorCode.ValueType = pb.NONE
        self._wake: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Be a member from now on."""
        self.process.spawn(self._live())

    def kill(self) -> None:
        """SIGKILL: nobody is told."""
        self.history.gives_up(self.process)
        self.process.kill()
        if self._connection is not None:
            self.world.network.reset(self._connection)

    async def leave(self) -> None:
        """Say that it goes. Called in a task of its own, while the rest of the process goes on."""
        self._give_up()
        leaving = pb.LeavingMember(member_id=self.member_id, group_instance_id=self.instance)
        request = pb.LeaveGroupRequest(group_id=self.group_id, members=[leaving])
        try:
            await self._call(request, pb.LeaveGroupResponse)
        except (ConnectionError, TimeoutError):
            self.world.step("a leave got lost")

    def rejoin(self) -> None:
        """Its subscription is another one."""
        self.version += 1
        self._hurry(Rejoin())

    async def _live(self) -> None:
        while True:
            try:
                if not self.stable:
                    await self._join()
                await self._work()
            except Rejoin as reason:
                self.stable = False
                if reason.forget:
                    self.member_id, self.generation = "", -1
                await asyncio.sleep(BACKOFF_S * self.world.chance.random() ** 4)
            except (ConnectionError, TimeoutError):
                await asyncio.sleep(BACKOFF_S * (1 + self.world.chance.random()))
                self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self.world.network.reset(self._connection)
            self._connection = None

    async def _connected(self) -> Connection:
        """A connection to the group's coordinator, found by asking any."""
        if self._connection is not None and self._connection.open:
            return self._connection
        host = self.world.chance.choice(self.world.hosts)
        connection = host.connect(self.process, self._noticed)
        request = pb.FindCoordinatorRequest(group_ids=[self.group_id])
        reply = await self.world.network.ask(connection, request, REQUEST_S)
        assert isinstance(reply, pb.FindCoordinatorResponse)
        found = reply.coordinators[0]
        if found.error_code != pb.NONE:
            raise ConnectionError("nobody coordinates the group now")
        if found.address != host.address:
            self.world.network.reset(connection)
            connection = self.world.host_at(found.address).connect(self.process, self._noticed)
        self._connection = connection
        return connection

    async def _call(self, request: Request, kind: type[Reply], within_s: float = REQUEST_S) -> Reply:
        connection = await self._connected()
        reply = await self.world.network.ask(connection, request, within_s)
        assert isinstance(reply, kind)
        return reply

    def _give_up(self) -> None:
        """What it owned is another's from here on, if somebody wants it."""
        self.stable = False
        if self.owned:
            self.lost, self.lost_with = self.owned, self.generation
            self.owned = {}
        self.history.gives_up(self.process)

    async def _join(self) -> None:
        self._give_up()
        request = pb.JoinGroupRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            group_instance_id=self.instance,
            client_id="member",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=[
                pb.Protocol(name="range", metadata=subscription(TOPIC, user_data=b"%d" % self.version))
            ],
        )
        reply = await self._call(request, pb.JoinGroupResponse, JOIN_S)
        if reply.error_code == pb.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            raise Rejoin
        self._obey(reply.error_code)
        self.member_id, self.generation = reply.member_id, reply.generation_id
        # What was said to who it was before does not concern who it is now.
        self._refusal = pb.NONE
        await self._sync([member.member_id for member in reply.members if not reply.skip_assignment])

    async def _sync(self, members: Sequence[str]) -> None:
        parts: dict[str, list[int]] = {member_id: [] for member_id in members}
        for partition in range(self.world.plan.partitions if members else 0):
            # Another way round each time, so that partitions move.
            parts[members[(partition + self.generation) % len(members)]].append(partition)
        request = pb.SyncGroupRequest(
            group_id=self.group_id,
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
        reply = await self._call(request, pb.SyncGroupResponse)
        self._obey(reply.error_code)
        mine = partitions_of(reply.assignment)
        positions = await self._positions(mine)
        self.owned = positions
        self.lost = {index: offset for index, offset in self.lost.items() if index not in mine}
        self.stable = True

    def _own(self, until_s: float) -> None:
        """
        It owns what it has until then, whatever happens to it.

        Only a heartbeat says so: a join or a sync may be answered from a round that was long ago, as in Kafka.
        """
        for partition in self.owned:
            self.history.holds(self.process, self.member_id, partition, self.world.loop.now_s, until_s)

    async def _positions(self, partitions: Sequence[int]) -> dict[int, int]:
        topics = [pb.TopicPartitions(name=TOPIC, partitions=partitions)]
        request = pb.FetchOffsetsRequest(group_id=self.group_id, topics=topics)
        reply = await self._call(request, pb.FetchOffsetsResponse)
        self._obey(reply.error_code)
        return {each.index: max(each.offset, 0) for topic in reply.topics for each in topic.partitions}

    async def _work(self) -> None:
        while True:
            await self._rest(HEARTBEAT_S * (0.5 + self.world.chance.random()))
            self._begin_commit()
            request = pb.HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
            )
            sent_s = self.world.loop.now_s
            reply = await self._call(request, pb.HeartbeatResponse)
            self._obey(reply.error_code)
            self._own(sent_s + SESSION_S)
            refusal, self._refusal = self._refusal, pb.NONE
            self._obey(refusal)

    async def _rest(self, seconds: float) -> None:
        """Work for a while, unless something has to be done now."""
        self._wake = self.world.loop.create_future()
        timer = self.world.loop.call_later(seconds, self._hurry, None)
        try:
            await self._wake
        finally:
            self._wake = None
            timer.cancel()

    def _hurry(self, reason: Rejoin | None) -> None:
        if self._wake is not None and not self._wake.done():
            if reason is None:
                self._wake.set_result(None)
            else:
                self._wake.set_exception(reason)

    def _noticed(self, notice: Notice) -> None:
        """The group starts to rebalance, or is served elsewhere."""
        match notice:
            case pb.GoAway():
                self._disconnect()
            case pb.RebalanceNotice():
                if notice.member_id == self.member_id and notice.generation_id == self.generation:
                    self._hurry(Rejoin())

    def _begin_commit(self) -> None:
        """One commit at a time, beside the heartbeats."""
        busy = self._committing is not None and not self._committing.done()
        if busy or not self.owned or self._connection is None:
            return
        owned, lost, generation = self.owned, {}, self.generation
        if self.lost and self.world.chance.random() < self.world.plan.late_verdict_rate:
            lost, self.lost = self.lost, {}
            if self.world.chance.random() < 0.5:
                owned, generation = {}, self.lost_with
        offsets = {partition: offset + 1 for partition, offset in (owned | lost).items()}
        commit = self.history.committing(self.member_id, generation, offsets)
        self._committing = self.world.network.ask(
            self._connection,
            commit_request(self.group_id, commit, self.instance),
            REQUEST_S,
        )
        self._committing.add_done_callback(partial(self._committed, commit))

    def _committed(self, commit: Commit, answer: "asyncio.Future[Message]") -> None:
        if answer.exception() is not None or commit.generation != self.generation:
            return
        reply = answer.result()
        assert isinstance(reply, pb.CommitOffsetsResponse)
        for each in reply.topics[0].partitions:
            if each.index in self.owned and each.error_code == pb.NONE:
                self.owned[each.index] = commit.offsets[each.index]
            elif each.index in self.owned:
                self._refusal = each.error_code

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
            case pb.UNKNOWN_MEMBER_ID | pb.FENCED_INSTANCE_ID | pb.GROUP_ID_NOT_FOUND:
                raise Rejoin(forget=True)
            case pb.GROUP_MAX_SIZE_REACHED:
                self.member_id = ""
                raise ConnectionError("there is no room")
            case _ if error in LOST:
                raise ConnectionError("not now")
            case _:
                raise AssertionError(f"no client expects {pb.ErrorCode.Name(error)} here")


def commit_request(group_id: str, commit: Commit, instance: str | None = None) -> pb.CommitOffsetsRequest:
    """A commit, with its number as the metadata of each offset."""
    partitions = [
        pb.PartitionOffset(index=index, offset=offset, leader_epoch=-1, metadata=str(commit.number))
        for index, offset in commit.offsets.items()
    ]
    return pb.CommitOffsetsRequest(
        group_id=group_id,
        generation_id=commit.generation,
        member_id=commit.member_id,
        group_instance_id=instance,
        topics=[pb.TopicOffsets(name=TOPIC, partitions=partitions)],
    )
