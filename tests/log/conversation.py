"""Short words for what tests ask the Log service."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import NamedTuple, Self

import grpc.aio

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from rota_proto.log import columns
from rota_proto.log.v1 import log_pb2 as pb
from rota_proto.log.v1.log_pb2_grpc import LogStub

COMMITTED = pb.ISOLATION_LEVEL_READ_COMMITTED
UNCOMMITTED = pb.ISOLATION_LEVEL_READ_UNCOMMITTED


class Producer(NamedTuple):
    """A producer and the sequence number of its next batch."""

    id: int = -1
    epoch: int = -1
    sequence: int = -1


NOBODY = Producer()


class Conversation:
    """One channel to a server."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.aio.insecure_channel(address)
        self.log = LogStub(self.channel)
        self.groups = CoordinatorStub(self.channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.channel.close()

    async def make(
        self, name: str, partitions: int = 1, *, retention_ms: int = -1, retention_bytes: int = -1
    ) -> bytes:
        """A new topic; its id."""
        topic = pb.CreateTopicsRequest.Topic(
            name=name, partitions=partitions, retention_ms=retention_ms, retention_bytes=retention_bytes
        )
        made = await self.log.CreateTopics(pb.CreateTopicsRequest(topics=[topic]))
        assert made.topics[0].error_code == codes.NONE
        return made.topics[0].topic_id

    async def send(
        self,
        topic: str,
        *batches: pb.RecordBatch,
        index: int = 0,
        acks: pb.Acks.ValueType = pb.ACKS_ALL,
        transactional_id: str = "",
    ) -> pb.ProduceResponse.Partition:
        """Append batches to a partition."""
        partition = pb.ProduceRequest.Partition(topic=topic, index=index, batches=batches)
        request = pb.ProduceRequest(partitions=[partition], acks=acks, transactional_id=transactional_id)
        return (await self.log.Produce(request)).partitions[0]

    async def read(
        self, topic: str, offset: int = 0, *, index: int = 0, request: pb.FetchRequest | None = None
    ) -> pb.FetchResponse.Partition:
        """Fetch from a partition; `request` says how."""
        asked = pb.FetchRequest()
        if request is not None:
            asked.CopyFrom(request)
        asked.partitions.add(topic=topic, index=index, offset=offset)
        return (await self.log.Fetch(asked)).partitions[0]

    async def values(
        self, topic: str, isolation: pb.IsolationLevel.ValueType = COMMITTED, index: int = 0
    ) -> list[bytes]:
        """All records of a partition that a reader sees now."""
        found: list[bytes] = []
        offset = 0
        while True:
            how = pb.FetchRequest(isolation_level=isolation)
            page = await self.read(topic, offset, index=index, request=how)
            assert page.error_code == codes.NONE
            for each in page.batches:
                found += values_of(each)
            if page.next_offset == offset:
                return found
            offset = page.next_offset

    async def offset_at(
        self, topic: str, timestamp_ms: int, isolation: pb.IsolationLevel.ValueType = UNCOMMITTED
    ) -> tuple[int, int]:
        """Return offset and timestamp from ListOffsets."""
        asked = pb.ListOffsetsRequest.Partition(topic=topic, index=0, timestamp_ms=timestamp_ms)
        reply = await self.log.ListOffsets(
            pb.ListOffsetsRequest(partitions=[asked], isolation_level=isolation)
        )
        assert reply.partitions[0].error_code == codes.NONE
        return reply.partitions[0].offset, reply.partitions[0].timestamp_ms


def batch(
    values: Sequence[bytes],
    timestamp_ms: int = 1_000,
    *,
    times: Sequence[int] = (),
    producer: Producer = NOBODY,
    transactional: bool = False,
) -> pb.RecordBatch:
    """Records without keys, all of one time unless they have their own."""
    times = times or [timestamp_ms] * len(values)
    return pb.RecordBatch(
        count=len(values),
        payload=columns.pack(columns.Columns(values=values, timestamps_ms=times), len(values), times[0]),
        base_timestamp_ms=times[0],
        max_timestamp_ms=max(times),
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=producer.sequence,
        transactional=transactional,
    )


def values_of(found: pb.RecordBatch) -> list[bytes]:
    """The values of a batch."""
    values = columns.unpack(found.payload, found.count, found.base_timestamp_ms).values
    assert values is not None
    return [value for value in values if value is not None]


class Transaction:
    """A producer with a transactional id, and its words."""

    def __init__(self, talk: Conversation, name: str) -> None:
        self._talk = talk
        self.name = name
        self.id = self.epoch = -1

    async def begin(self, timeout_ms: int = 60_000) -> "Transaction":
        """InitProducer."""
        request = pb.InitProducerRequest(transactional_id=self.name, transaction_timeout_ms=timeout_ms)
        made = await self._talk.log.InitProducer(request)
        assert made.error_code == codes.NONE
        self.id, self.epoch = made.producer_id, made.producer_epoch
        return self

    async def send(self, topic: str, value: bytes, sequence: int = 0) -> int:
        """The error of a batch in the transaction."""
        sent = batch([value], producer=Producer(self.id, self.epoch, sequence), transactional=True)
        return (await self._talk.send(topic, sent, transactional_id=self.name)).error_code

    async def end(self, *, commit: bool) -> int:
        """EndTransaction."""
        request = pb.EndTransactionRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, commit=commit
        )
        reply = await self._talk.log.EndTransaction(request)
        if reply.producer_id or reply.producer_epoch:
            self.id, self.epoch = reply.producer_id, reply.producer_epoch
        return reply.error_code

    async def bring(self, group: str, offset: int, topic: str, generation: int = -1, member: str = "") -> int:
        """Offsets of a group, as part of the transaction; the first error."""
        add = pb.AddOffsetsToTransactionRequest(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            group_id=group,
            generation_id=generation,
            member_id=member,
        )
        added = await self._talk.log.AddOffsetsToTransaction(add)
        if added.error_code:
            return added.error_code
        partition = codes.PartitionOffset(index=0, offset=offset, leader_epoch=-1)
        request = codes.TxnCommitOffsetsRequest(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            group_id=group,
            generation_id=generation,
            member_id=member,
            topics=[codes.TopicOffsets(name=topic, partitions=[partition])],
        )
        reply = await self._talk.groups.TxnCommitOffsets(request)
        return reply.error_code or reply.topics[0].partitions[0].error_code


async def committed(talk: Conversation, group: str, topic: str) -> int:
    """The group's offset in partition 0, when no transaction holds it."""
    request = codes.FetchOffsetsRequest(group_id=group, require_stable=True)
    request.topics.add(name=topic, partitions=[0])
    reply = await talk.groups.FetchOffsets(request)
    assert reply.topics[0].partitions[0].error_code == codes.NONE
    return reply.topics[0].partitions[0].offset


Story = Callable[[Conversation], Coroutine[None, None, None]]


def write_story(address: str, story: Story) -> None:
    """Run a story at a server."""

    async def run() -> None:
        async with Conversation(address) as talk:
            await story(talk)

    asyncio.run(run())
