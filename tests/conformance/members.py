"""The cases' vocabulary: groups and members, in as few words as the reference uses."""

import asyncio
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from google.protobuf.message import Message

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.driver import ANSWER_S, FIRST_PRODUCER, PRODUCERS, Call, Driver

Answer = TypeVar("Answer", bound=Message)
TOPIC = "conformance"
# Nobody in a case subscribes to it.
OTHER_TOPIC = "conformance-other"


def subscription(*topics: str, user_data: bytes = b"") -> bytes:
    """Kafka's subscription, version 0: a real broker leaves a join with other bytes unanswered for ever."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics or (TOPIC,))
    return struct.pack(">hi", 0, max(len(topics), 1)) + names + struct.pack(">i", len(user_data)) + user_data


def assignment(*partitions: int, topic: str = TOPIC) -> bytes:
    """Kafka's assignment, version 0."""
    if not partitions:
        return struct.pack(">hii", 0, 0, 0)
    numbers = b"".join(struct.pack(">i", partition) for partition in partitions)
    name = struct.pack(">h", len(topic)) + topic.encode()
    return (
        struct.pack(">hi", 0, 1) + name + struct.pack(">i", len(partitions)) + numbers + struct.pack(">i", 0)
    )


async def answer(call: Call, kind: type[Answer], within_s: float = ANSWER_S) -> Answer:
    """The answer of a call, as its type."""
    return cast("Answer", await call.answer(within_s))


@dataclass(slots=True)
class Member:
    """A member as its own client sees it."""

    driver: Driver
    group: str
    instance: str | None = None
    member_id: str = ""
    generation: int = -1
    leader: str = ""
    client_id: str = "cid"
    session_ms: int = 10_000
    rebalance_ms: int = 20_000
    protocol_type: str = "consumer"
    protocols: dict[str, bytes] = field(default_factory=lambda: {"range": subscription()})
    protocol: str = ""
    entries: Sequence[pb.Member] = ()

    def with_changes(self, **changes: object) -> "Member":
        """The same member, saying something else."""
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def leads(self) -> bool:
        return self.leader == self.member_id

    def join_request(self) -> pb.JoinGroupRequest:
        """JoinGroup with what it knows."""
        return pb.JoinGroupRequest(
            group_id=self.group,
            member_id=self.member_id,
            group_instance_id=self.instance,
            client_id=self.client_id,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            protocol_type=self.protocol_type,
            protocols=[pb.Protocol(name=name, metadata=data) for name, data in self.protocols.items()],
            reason="conformance",
        )

    def send_join(self) -> Call:
        """Send a JoinGroup."""
        return self.driver.send(self.join_request())

    async def take_id(self) -> str:
        """The first step of a dynamic member."""
        reply = await answer(self.send_join(), pb.JoinGroupResponse)
        assert reply.error_code == pb.MEMBER_ID_REQUIRED, reply
        self.member_id = reply.member_id
        return self.member_id

    async def send_second_join(self) -> Call:
        """Both steps; the second is left open. A static member needs only one."""
        if self.instance is None and not self.member_id:
            await self.take_id()
        return self.send_join()

    def accept(self, reply: pb.JoinGroupResponse) -> pb.JoinGroupResponse:
        """Learn from the answer to a join."""
        assert reply.error_code == pb.NONE, reply
        self.member_id, self.generation, self.leader = reply.member_id, reply.generation_id, reply.leader
        self.protocol, self.entries = reply.protocol_name, list(reply.members)
        return reply

    async def joined(self, call: Call, within_s: float = ANSWER_S) -> pb.JoinGroupResponse:
        """Wait for the answer to a join, and learn from it."""
        return self.accept(await answer(call, pb.JoinGroupResponse, within_s))

    def send_sync(self, assignments: dict[str, bytes] | None = None, **changes: object) -> Call:
        """SyncGroup."""
        request = pb.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignments=[
                pb.Assignment(member_id=member_id, assignment=data)
                for member_id, data in (assignments or {}).items()
            ],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return self.driver.send(request)

    async def heartbeat(self, **changes: object) -> int:
        """The error code of a heartbeat."""
        request = pb.HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return (await answer(self.driver.send(request), pb.HeartbeatResponse)).error_code

    async def leave(self) -> int:
        """The error code of its entry in a LeaveGroup."""
        reply = await leave(self.driver, self.group, (self.member_id, self.instance))
        return reply.members[0].error_code

    def commit_request(
        self, offsets: dict[int, int] | None = None, **changes: object
    ) -> pb.CommitOffsetsRequest:
        """A commit of these offsets, by partition."""
        request = pb.CommitOffsetsRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[topic_offsets(offsets or {0: 1})],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return request

    async def commit(self, offsets: dict[int, int] | None = None, **changes: object) -> int:
        """The error code of the first partition of a commit."""
        reply = await answer(
            self.driver.send(self.commit_request(offsets, **changes)), pb.CommitOffsetsResponse
        )
        return reply.topics[0].partitions[0].error_code

    async def txn_commit(self, offsets: dict[int, int] | None = None, producer: str = FIRST_PRODUCER) -> int:
        """The same, as part of a producer's transaction."""
        request = pb.TxnCommitOffsetsRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[topic_offsets(offsets or {0: 1})],
            transactional_id=producer,
            producer_id=PRODUCERS[producer],
        )
        reply = await answer(self.driver.send(request), pb.TxnCommitOffsetsResponse)
        return reply.topics[0].partitions[0].error_code


def topic_offsets(offsets: dict[int, int], topic: str = TOPIC) -> pb.TopicOffsets:
    """Offsets of a topic, by partition."""
    return pb.TopicOffsets(
        name=topic,
        partitions=[
            pb.PartitionOffset(index=index, offset=offset, leader_epoch=-1)
            for index, offset in offsets.items()
        ],
    )


async def leave(driver: Driver, group: str, *entries: tuple[str, str | None]) -> pb.LeaveGroupResponse:
    """LeaveGroup with these (member id, instance id)."""
    members = [
        pb.LeavingMember(member_id=member_id, group_instance_id=instance, reason="conformance")
        for member_id, instance in entries
    ]
    return await answer(
        driver.send(pb.LeaveGroupRequest(group_id=group, members=members)), pb.LeaveGroupResponse
    )


async def fetch(driver: Driver, group: str, *partitions: int, topic: str = TOPIC) -> dict[int, int]:
    """The committed offsets by partition; of all partitions when none is named."""
    request = pb.FetchOffsetsRequest(group_id=group, all=not partitions)
    if partitions:
        request.topics.add(name=topic, partitions=partitions)
    reply = await answer(driver.send(request), pb.FetchOffsetsResponse)
    return {each.index: each.offset for fetched in reply.topics for each in fetched.partitions}


def new_group() -> str:
    """Return an unused group id."""
    return f"group-{uuid.uuid4().hex[:12]}"


async def rebalance(*members: Member) -> None:
    """All members join again: the leader first, because its join is what opens a round."""
    ordered = sorted(members, key=lambda member: not member.leads)
    calls = []
    for member in ordered:
        calls.append(await member.send_second_join())
        if member is ordered[0] and len(ordered) > 1:
            assert await calls[0].is_parked()
    for member, call in zip(ordered, calls, strict=True):
        await member.joined(call)


async def settle(*members: Member) -> None:
    """All members sync; the leader gives each one partition, in the order given here."""
    parts = {member.member_id: assignment(number) for number, member in enumerate(members)}
    calls = [(member, member.send_sync(parts if member.leads else None)) for member in members]
    replies = await asyncio.gather(*(answer(call, pb.SyncGroupResponse) for _, call in calls))
    for (member, _), reply in zip(calls, replies, strict=True):
        assert (reply.error_code, reply.assignment) == (pb.NONE, parts[member.member_id])


async def form(*members: Member) -> None:
    """Get the members into one stable generation; the first one leads."""
    first, *others = members
    await first.joined(await first.send_second_join())
    await settle(first)
    for count, other in enumerate(others, 1):
        present = members[:count]
        joining = await other.send_second_join()
        assert await joining.is_parked()
        await rejoin_all(present)
        await other.joined(joining)
        await settle(*members[: count + 1])


async def rejoin_all(members: Sequence[Member]) -> None:
    """Members join the open round."""
    calls = [member.send_join() for member in members]
    for member, call in zip(members, calls, strict=True):
        await member.joined(call)
