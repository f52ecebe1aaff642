"""Writes dead letters to the embedded log: implements `DeadLetterWriter` with Produce requests."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import grpc.aio
from typing_extensions import override

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.log.columns import CODEC, Columns, pack
from rota_proto.log.keys import murmur2
from rota_proto.log.v1 import log_pb2
from rota_proto.log.v1.log_pb2_grpc import LogStub
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.records import DeadLetter, DeadLetterWriter
from rota_sidecar.engines.rota.connection import Credentials, RpcClient, first_of, open_channel, target_of
from rota_sidecar.engines.rota.topics import NO_LOG, RotaTopics

# Limit of a request, below the log's limit of a batch. A single dead letter may be larger; the log then rejects it.
BATCH_BYTES_MAX = 512 << 10
REFUSALS = {
    pb.TOPIC_AUTHORIZATION_FAILED: "denies access; allow this client to produce to it",
    pb.MESSAGE_TOO_LARGE: "rejects a record of that size with the headers of its origin; write smaller records",
    pb.RECORD_LIST_TOO_LARGE: "rejects a record of that size with the headers of its origin; write smaller records",
    pb.UNKNOWN_TOPIC_OR_PARTITION: "does not exist; create it, or name another topic in the group's settings",
}


class RotaDeadLetterWriter(DeadLetterWriter):
    """
    Must be created and used on a running loop.

    Invariant: records with equal keys go to the same partition, the one that Kafka's clients choose.
    """

    def __init__(self, addresses: Sequence[str], credentials: Credentials) -> None:
        self._addresses = [target_of(address) for address in addresses]
        self._credentials = credentials
        self._topics = RotaTopics(addresses, credentials)
        self._counts: dict[str, int] = {}
        # Records without a key go to partitions round-robin, one partition for each write.
        self._turn = 0

    @override
    async def write(self, dead_letters: Sequence[DeadLetter], within_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + within_s
        try:
            await self._count({dead_letter.topic for dead_letter in dead_letters}, within_s)
            self._turn += 1
            for partition, batch in self._batches(dead_letters):
                await self._produce(partition, batch, deadline_s - loop.time())
        except (Unreachable, Refused):
            # The next call looks the topics up again: they may be created or recreated meanwhile.
            self._counts.clear()
            raise

    @override
    async def close(self) -> None:
        """Close the topics; no connection is kept open, as dead letters are rare."""
        await self._topics.close()

    async def _count(self, topics: set[str], within_s: float) -> None:
        missing = sorted(topics - self._counts.keys())
        described = await self._topics.describe(missing, within_s)
        for topic in missing:
            if topic not in described:
                raise Refused(f"the dead-letter topic {topic} {REFUSALS[pb.UNKNOWN_TOPIC_OR_PARTITION]}")
            self._counts[topic] = described[topic].partitions

    def _batches(self, dead_letters: Sequence[DeadLetter]) -> Iterator[tuple[Partition, log_pb2.RecordBatch]]:
        for partition, of_partition in self._by_partition(dead_letters).items():
            for batch in batches_of(of_partition):
                yield partition, batch

    def _by_partition(self, dead_letters: Sequence[DeadLetter]) -> Mapping[Partition, Sequence[DeadLetter]]:
        found: dict[Partition, list[DeadLetter]] = {}
        for dead_letter in dead_letters:
            number = self._turn if dead_letter.key is None else murmur2(dead_letter.key)
            partition = Partition(dead_letter.topic, number % self._counts[dead_letter.topic])
            found.setdefault(partition, []).append(dead_letter)
        return found

    async def _produce(self, partition: Partition, batch: log_pb2.RecordBatch, within_s: float) -> None:
        asked = log_pb2.ProduceRequest.Partition(
            topic=partition.topic, index=partition.number, batches=[batch]
        )
        request = log_pb2.ProduceRequest(partitions=[asked], acks=log_pb2.ACKS_ALL)

        async def ask(address: str, share_s: float) -> log_pb2.ProduceResponse:
            channel: grpc.aio.Channel = open_channel(address, self._credentials)
            try:
                client = RpcClient(address, self._credentials, share_s, NO_LOG)
                return await client.call(LogStub(channel).Produce, request)
            finally:
                await channel.close()

        clock = asyncio.get_running_loop().time
        response = await first_of(self._addresses, ask, within_s, clock)
        check(response.partitions[0].error_code, partition.topic)


def check(error: pb.ErrorCode.ValueType, topic: str) -> None:
    """Raise Refused or Unreachable for an error code of the log."""
    if error == pb.NONE:
        return
    if error in REFUSALS:
        raise Refused(f"the dead-letter topic {topic} {REFUSALS[error]}")
    name = pb.ErrorCode.Name(error)
    raise Unreachable(f"the log cannot write dead letters to {topic} now ({name}); they are retried later")


def batches_of(dead_letters: Sequence[DeadLetter]) -> list[log_pb2.RecordBatch]:
    """Encode dead letters of one partition, in order, in batches up to the limit."""
    times = [dead_letter.timestamp_ms for dead_letter in dead_letters]
    columns = Columns(
        [dead_letter.value for dead_letter in dead_letters],
        [dead_letter.key for dead_letter in dead_letters],
        times,
        [dead_letter.headers for dead_letter in dead_letters],
    )
    payload = pack(columns, len(dead_letters), times[0])
    if len(payload) > BATCH_BYTES_MAX and len(dead_letters) > 1:
        half = len(dead_letters) // 2
        return [*batches_of(dead_letters[:half]), *batches_of(dead_letters[half:])]
    return [
        log_pb2.RecordBatch(
            base_timestamp_ms=times[0],
            max_timestamp_ms=max(times),
            count=len(dead_letters),
            codec=CODEC,
            payload=payload,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
        )
    ]
