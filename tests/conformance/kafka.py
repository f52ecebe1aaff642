"""A real Apache Kafka broker under test, over its wire protocol: the reference itself."""

import asyncio
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import NamedTuple, cast

from google.protobuf.message import Message
from kafka.protocol import admin as admin_wire
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import group as wire
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import transaction

from rota_proto.coordinator.v1 import admin_pb2 as admin_pb
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.driver import FIRST_PRODUCER, KAFKA, FutureCall, Settings, transactional_id
from tests.support.kafka import Kafka

# The newest version of each message that kafka-python and the broker both speak.
VERSIONS = {
    wire.JoinGroupRequest: 9,
    wire.SyncGroupRequest: 5,
    wire.HeartbeatRequest: 4,
    wire.LeaveGroupRequest: 5,
    wire.OffsetCommitRequest: 9,
    wire.OffsetFetchRequest: 9,
    FindCoordinatorRequest: 4,
    transaction.InitProducerIdRequest: 4,
    transaction.AddOffsetsToTxnRequest: 3,
    # From version 5 on it begins the transaction's part in the group by itself.
    transaction.TxnOffsetCommitRequest: 3,
    transaction.EndTxnRequest: 3,
    admin_wire.CreateTopicsRequest: 5,
    admin_wire.DeleteTopicsRequest: 5,
    admin_wire.ListGroupsRequest: 5,
    # Version 6 answers an unknown group with an error instead of a dead group.
    admin_wire.DescribeGroupsRequest: 5,
    admin_wire.DeleteGroupsRequest: 2,
    wire.OffsetDeleteRequest: 0,
}

# How long a broker may take for what it does in its own time.
ENDED_WITHIN_S = 30
DELETED_MS = 10_000
POLL_S = 0.05
NOT_YET = (
    pb.COORDINATOR_LOAD_IN_PROGRESS,
    pb.COORDINATOR_NOT_AVAILABLE,
    pb.NOT_COORDINATOR,
    pb.CONCURRENT_TRANSACTIONS,
)
# What a coordinator can be asked for.
GROUP_KEY, TRANSACTION_KEY = 0, 1
# As long as a case at most; an unfinished one is then ended by the broker.
TRANSACTION_MS = 60_000

STATES = {
    # With an error there is no state.
    admin_pb.GROUP_STATE_UNSPECIFIED: "",
    admin_pb.GROUP_STATE_EMPTY: "Empty",
    admin_pb.GROUP_STATE_PREPARING_REBALANCE: "PreparingRebalance",
    admin_pb.GROUP_STATE_COMPLETING_REBALANCE: "CompletingRebalance",
    admin_pb.GROUP_STATE_STABLE: "Stable",
    admin_pb.GROUP_STATE_DEAD: "Dead",
}


def text(value: str | None) -> str:
    """Kafka's null is our empty string."""
    return value or ""


def instance(request: Message) -> str | None:
    """Our absent instance id is Kafka's null."""
    return request.group_instance_id if request.HasField("group_instance_id") else None  # type: ignore[attr-defined]


def to_kafka(request: Message) -> tuple[ApiMessage, str]:
    """The same request in Kafka's words, and the client id that it goes with."""
    match request:
        case pb.JoinGroupRequest():
            message = wire.JoinGroupRequest(
                group_id=request.group_id,
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                member_id=request.member_id,
                group_instance_id=instance(request),
                protocol_type=request.protocol_type,
                protocols=[(protocol.name, protocol.metadata) for protocol in request.protocols],
                reason=request.reason,
            )
            return message, request.client_id
        case pb.SyncGroupRequest():
            message = wire.SyncGroupRequest(
                group_id=request.group_id,
                generation_id=request.generation_id,
                member_id=request.member_id,
                group_instance_id=instance(request),
                protocol_type=request.protocol_type or None,
                protocol_name=request.protocol_name or None,
                assignments=[(each.member_id, each.assignment) for each in request.assignments],
            )
        case pb.HeartbeatRequest():
            message = wire.HeartbeatRequest(
                group_id=request.group_id,
                generation_id=request.generation_id,
                member_id=request.member_id,
                group_instance_id=instance(request),
            )
        case pb.LeaveGroupRequest():
            members = [(each.member_id, instance(each), each.reason) for each in request.members]
            message = wire.LeaveGroupRequest(group_id=request.group_id, members=members)
        case pb.CommitOffsetsRequest():
            message = wire.OffsetCommitRequest(
                group_id=request.group_id,
                generation_id_or_member_epoch=request.generation_id,
                member_id=request.member_id,
                group_instance_id=instance(request),
                topics=offsets_to_kafka(request),
            )
        case pb.TxnCommitOffsetsRequest():
            message = transaction.TxnOffsetCommitRequest(
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                group_id=request.group_id,
                generation_id=request.generation_id,
                member_id=request.member_id,
                group_instance_id=instance(request),
                topics=offsets_to_kafka(request),
            )
        case pb.FetchOffsetsRequest():
            topics = (
                None if request.all else [(topic.name, list(topic.partitions)) for topic in request.topics]
            )
            message = wire.OffsetFetchRequest(
                groups=[(request.group_id, None, -1, topics)], require_stable=request.require_stable
            )
        case _:
            message = administration_to_kafka(request)
    return message, "cid"


def offsets_to_kafka(
    request: pb.CommitOffsetsRequest | pb.TxnCommitOffsetsRequest,
) -> list[tuple[str, list[object]]]:
    """Convert the offsets of a commit, by topic."""
    return [
        (
            topic.name,
            [(each.index, each.offset, each.leader_epoch, each.metadata) for each in topic.partitions],
        )
        for topic in request.topics
    ]


def administration_to_kafka(request: Message) -> ApiMessage:
    """Convert a request of an administrator."""
    match request:
        case admin_pb.ListGroupsRequest():
            return admin_wire.ListGroupsRequest(states_filter=[STATES[state] for state in request.states])
        case admin_pb.DescribeGroupsRequest():
            return admin_wire.DescribeGroupsRequest(groups=list(request.group_ids))
        case admin_pb.DeleteGroupsRequest():
            return admin_wire.DeleteGroupsRequest(groups_names=list(request.group_ids))
        case admin_pb.DeleteOffsetsRequest():
            topics = [(topic.name, [(index,) for index in topic.partitions]) for topic in request.topics]
            return wire.OffsetDeleteRequest(group_id=request.group_id, topics=topics)
        case _:
            raise TypeError(f"no case sends a {type(request).__name__} to Kafka")


def from_kafka(answer: ApiMessage) -> Message:
    """The same answer in our words."""
    match answer:
        case wire.JoinGroupResponse():
            return pb.JoinGroupResponse(
                error_code=answer.error_code,
                generation_id=answer.generation_id,
                protocol_type=text(answer.protocol_type),
                protocol_name=text(answer.protocol_name),
                leader=answer.leader,
                member_id=answer.member_id,
                skip_assignment=answer.skip_assignment,
                members=[
                    pb.Member(
                        member_id=each.member_id,
                        group_instance_id=each.group_instance_id,
                        metadata=bytes(each.metadata),
                    )
                    for each in answer.members
                ],
            )
        case wire.SyncGroupResponse():
            return pb.SyncGroupResponse(
                error_code=answer.error_code,
                protocol_type=text(answer.protocol_type),
                protocol_name=text(answer.protocol_name),
                assignment=bytes(answer.assignment),
            )
        case wire.HeartbeatResponse():
            return pb.HeartbeatResponse(error_code=answer.error_code)
        case wire.LeaveGroupResponse():
            members = [
                pb.LeftMember(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=each.error_code,
                )
                for each in answer.members
            ]
            return pb.LeaveGroupResponse(error_code=answer.error_code, members=members)
        case _:
            return offsets_from_kafka(answer)


def administration_from_kafka(answer: ApiMessage) -> Message:
    """The answers to administrators."""
    by_name = {name: state for state, name in STATES.items()}
    match answer:
        case admin_wire.ListGroupsResponse():
            groups = [
                admin_pb.ListedGroup(
                    group_id=each.group_id,
                    protocol_type=each.protocol_type,
                    state=by_name[each.group_state],
                )
                for each in answer.groups
            ]
            return admin_pb.ListGroupsResponse(error_code=answer.error_code, groups=groups)
        case admin_wire.DescribeGroupsResponse():
            (group,) = answer.groups
            members = [
                admin_pb.DescribedMember(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    metadata=bytes(each.member_metadata),
                    assignment=bytes(each.member_assignment),
                )
                for each in group.members
            ]
            described = admin_pb.DescribedGroup(
                error_code=group.error_code,
                group_id=group.group_id,
                state=by_name[group.group_state],
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_data,
                members=members,
            )
            return admin_pb.DescribeGroupsResponse(groups=[described])
        case admin_wire.DeleteGroupsResponse():
            deleted = [
                admin_pb.DeletedGroup(group_id=each.group_id, error_code=each.error_code)
                for each in answer.results
            ]
            return admin_pb.DeleteGroupsResponse(groups=deleted)
        case _:
            return admin_pb.DeleteOffsetsResponse(error_code=answer.error_code, topics=topic_errors(answer))


def topic_errors(answer: ApiMessage) -> list[pb.TopicErrors]:
    """The outcome for each partition."""
    return [
        pb.TopicErrors(
            name=topic.name,
            partitions=[
                pb.PartitionError(index=each.partition_index, error_code=each.error_code)
                for each in topic.partitions
            ],
        )
        for topic in answer.topics
    ]


def offsets_from_kafka(answer: ApiMessage) -> Message:
    """The answers that speak of offsets."""
    if isinstance(answer, wire.OffsetCommitResponse):
        return pb.CommitOffsetsResponse(topics=topic_errors(answer))
    if isinstance(answer, transaction.TxnOffsetCommitResponse):
        return pb.TxnCommitOffsetsResponse(topics=topic_errors(answer))
    if not isinstance(answer, wire.OffsetFetchResponse):
        return administration_from_kafka(answer)
    (group,) = answer.groups
    fetched = [
        pb.FetchedTopic(
            name=topic.name,
            partitions=[
                pb.FetchedPartition(
                    index=each.partition_index,
                    offset=each.committed_offset,
                    leader_epoch=each.committed_leader_epoch,
                    metadata=text(each.metadata),
                    error_code=each.error_code,
                )
                for each in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return pb.FetchOffsetsResponse(error_code=group.error_code, topics=fetched)


def response_to(message: ApiMessage) -> type[ApiMessage]:
    """The type of the answer to a message."""
    kind = type(message)
    found: type[ApiMessage] = getattr(
        import_module(kind.__module__), kind.__name__.replace("Request", "Response")
    )
    return found


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Producer(NamedTuple):
    """Identity of a producer with a transactional id, as the broker returned it."""

    producer_id: int
    producer_epoch: int


@dataclass(slots=True)
class KafkaDriver:
    """One connection for each open request: a broker answers a connection's requests one after the other."""

    address: str
    settings: Settings
    name: str = KAFKA
    idle: list[Connection] = field(default_factory=list)
    open: list["asyncio.Task[Message]"] = field(default_factory=list)
    versions: Mapping[type[ApiMessage], int] = field(default_factory=VERSIONS.copy)
    # Open transactions, by group and transactional id.
    producers: dict[tuple[str, str], Producer] = field(default_factory=dict)

    def speaking(self, versions: Mapping[type[ApiMessage], int]) -> "KafkaDriver":
        """The same broker, spoken to by a client of these older versions."""
        return replace(self, versions={**self.versions, **versions})

    def send(self, request: Message) -> FutureCall:
        task = asyncio.create_task(self._exchange(request))
        self.open.append(task)
        return FutureCall(task)

    async def pass_time(self, seconds: float) -> None:
        # The broker's clock is the machine's: its time is what is under test.
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Drop what is still open."""
        for task in self.open:
            task.cancel()
        await asyncio.gather(*self.open, return_exceptions=True)
        for _, writer in self.idle:
            writer.close()
            await writer.wait_closed()

    async def find_coordinator(self, group: str) -> None:
        """Ask who coordinates a group; the first who ever asks makes the broker prepare for groups."""
        await self.ask(FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[group]))

    async def begin_transaction(self, group: str, producer: str = FIRST_PRODUCER) -> int:
        """Begin a transaction that will commit offsets of the group; the error code."""
        name = transactional_id(group, producer)
        await self.ask(FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=[name]))
        begun = await self.ask(
            transaction.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TRANSACTION_MS)
        )
        if begun.error_code:
            return int(begun.error_code)
        identity = Producer(begun.producer_id, begun.producer_epoch)
        added = await self.ask(
            transaction.AddOffsetsToTxnRequest(transactional_id=name, group_id=group, **identity._asdict())
        )
        self.producers[group, name] = identity
        return int(added.error_code)

    async def end_transaction(self, group: str, producer: str = FIRST_PRODUCER, *, committed: bool) -> None:
        """End the transaction of one of the group's producers; the broker tells its partitions and groups in its own time."""
        name = transactional_id(group, producer)
        identity = self.producers.pop((group, name))
        request = transaction.EndTxnRequest(transactional_id=name, committed=committed, **identity._asdict())
        ended = await self.ask(request)
        assert ended.error_code == pb.NONE, f"the transaction does not end: error {ended.error_code}"
        if any(other == group for other, _ in self.producers):
            return  # Its offsets keep the group unstable: only a case knows what to wait for.
        asked = pb.FetchOffsetsRequest(group_id=group, all=True, require_stable=True)
        async with asyncio.timeout(ENDED_WITHIN_S):
            while is_unstable(cast("pb.FetchOffsetsResponse", await self._exchange(asked))):
                await asyncio.sleep(POLL_S)

    async def create_topic(self, name: str) -> None:
        """Make a topic with one partition."""
        topic = admin_wire.CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1
        )
        made = await self.ask(admin_wire.CreateTopicsRequest(topics=[topic]))
        assert [each.error_code for each in made.topics] == [pb.NONE]

    async def delete_topic(self, name: str) -> None:
        """Delete it."""
        gone = await self.ask(admin_wire.DeleteTopicsRequest(topic_names=[name], timeout_ms=DELETED_MS))
        assert [each.error_code for each in gone.responses] == [pb.NONE]

    async def ask(self, message: ApiMessage, client_id: str = "cid") -> ApiMessage:
        """The broker's answer, in its own words."""
        version = self.versions[type(message)]
        message.with_header(correlation_id=1, client_id=client_id)
        host, port = self.address.rsplit(":", 1)
        connection = self.idle.pop() if self.idle else await asyncio.open_connection(host, int(port))
        reader, writer = connection
        try:
            data = message.encode(version=version, header=True)
            writer.write(struct.pack(">i", len(data)) + data)
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            answer = await reader.readexactly(length)
        except BaseException:
            writer.close()
            raise
        self.idle.append(connection)
        return response_to(message).decode(answer, version=version, header=True)

    async def _exchange(self, request: Message) -> Message:
        if isinstance(request, pb.TxnCommitOffsetsRequest):
            await self._take_part(request)
        return from_kafka(await self.ask(*to_kafka(request)))

    async def _take_part(self, request: pb.TxnCommitOffsetsRequest) -> None:
        """A broker hands out the ids of producers itself, and takes offsets of a transaction that has begun only."""
        name = transactional_id(request.group_id, request.transactional_id)
        if (request.group_id, name) not in self.producers:
            # The broker still loads its transactions after a start, or completes the producer's last one.
            async with asyncio.timeout(ENDED_WITHIN_S):
                begin = partial(self.begin_transaction, request.group_id, request.transactional_id)
                while (error := await begin()) in NOT_YET:
                    await asyncio.sleep(POLL_S)
            assert error == pb.NONE, f"no transaction for group {request.group_id}: error {error}"
        request.transactional_id = name
        request.producer_id, request.producer_epoch = self.producers[request.group_id, name]


@dataclass(slots=True)
class MortalBroker(KafkaDriver):
    """A broker that a case may kill."""

    kafka: Kafka | None = None

    async def fail_over(self, group: str) -> None:
        """Kill the broker, and start it again."""
        assert self.kafka is not None
        broker = self.kafka.broker(1)
        broker.kill()
        broker.begin_start()
        # Only the waiting may be in another thread: a process ends with the one that started it.
        await asyncio.to_thread(broker.end_start)
        with suppress(OSError):
            await self.close()
        self.idle.clear()
        asked = pb.FetchOffsetsRequest(group_id=group, all=True)
        async with asyncio.timeout(ENDED_WITHIN_S):
            while cast("pb.FetchOffsetsResponse", await self._exchange(asked)).error_code in NOT_YET:
                await asyncio.sleep(POLL_S)


def is_unstable(reply: pb.FetchOffsetsResponse) -> bool:
    """Return whether a transaction still holds one of the offsets."""
    codes = {partition.error_code for topic in reply.topics for partition in topic.partitions}
    return pb.UNSTABLE_OFFSET_COMMIT in codes
