"""
Writes dead letters to Kafka over the sidecar's own connections: implements `DeadLetterWriter` with Produce requests.

A batch is sent again until the broker acknowledges it or the time is over. Without idempotence it may then be written twice, as a
dead letter may be anyway: it is written at least once.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from kafka.protocol.producer.produce import ProduceRequest
from typing_extensions import override

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.log.keys import murmur2
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.metadata import Leader
from rota_sidecar.engines.kafka.python_client.brokers import Brokers
from rota_sidecar.engines.kafka.python_client.encoding import encode
from rota_sidecar.engines.kafka.settings import Address, KafkaSettings
from rota_sidecar.engines.kafka.topics import NO_TOPIC
from rota_sidecar.engines.kafka.write_errors import missing_topic, rejection_of, too_late
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.records import DeadLetter, DeadLetterWriter

# Limit of a batch, below the broker's default of 1 MiB. A single dead letter may be larger; the broker decides.
BATCH_BYTES_MAX = 512 << 10
# Besides its key, value and headers, a record has at most this many bytes.
OVERHEAD_BYTES = 32
RETRY_S = 0.1
ALL_IN_SYNC = -1
TOO_LARGE = (pb.MESSAGE_TOO_LARGE, pb.RECORD_LIST_TOO_LARGE)
# Errors that a retry does not fix.
REFUSALS: Mapping[int, str] = {
    **dict.fromkeys(TOO_LARGE, "a record is too large"),
    pb.TOPIC_AUTHORIZATION_FAILED: "not authorized to write to it",
    pb.CLUSTER_AUTHORIZATION_FAILED: "not authorized to write to the cluster",
    pb.INVALID_RECORD: "the topic does not accept such a record",
    pb.INVALID_TIMESTAMP: "the timestamp is outside the range that the topic accepts",
    pb.POLICY_VIOLATION: "a policy of the cluster forbids it",
}

Queue = deque[Sequence[DeadLetter]]


class PythonDeadLetterWriter(DeadLetterWriter):
    """
    Must be created and used on a running loop.

    Invariant: one call writes at a time, and after a failed call no further request of it is sent. Records with equal keys go
    to the same partition, the one that Kafka's clients choose.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._brokers = Brokers(settings)
        self._addresses: Mapping[int, Address] = {}
        # The leaders of the partitions of each known topic.
        self._leaders: dict[str, Sequence[Leader]] = {}
        # Records without a key go to partitions round-robin, one partition for each write.
        self._turn = 0
        self._writing = asyncio.Lock()

    @override
    async def write(self, dead_letters: Sequence[DeadLetter], within_s: float) -> None:
        # One call after the other; the time limit of a call starts when the call before it has ended.
        async with self._writing:
            try:
                await self._require_topics({each.topic for each in dead_letters}, within_s)
                await self._write(dead_letters, within_s)
            except (Unreachable, Refused):
                # The next call looks the topics up again: they may be created or recreated meanwhile.
                self._leaders.clear()
                raise

    @override
    async def close(self) -> None:
        async with self._writing:
            await self._brokers.close()

    async def _require_topics(self, topics: set[str], within_s: float) -> None:
        """Look up the leaders of topics that are not known yet. Raises Unreachable, Refused."""
        missing = sorted(topics - self._leaders.keys())
        if missing:
            await self._look_up(missing, within_s)

    async def _look_up(self, topics: Sequence[str], within_s: float) -> None:
        metadata = await self._brokers.describe(topics, within_s)
        self._addresses = metadata.brokers
        found = {each.name: each for each in metadata.topics}
        for topic in topics:
            described = found.get(topic)
            if described is None or described.error_code in NO_TOPIC:
                raise missing_topic(topic)
            if described.error_code in REFUSALS:
                raise Refused(rejection_of(topic, REFUSALS[described.error_code]))
            if described.error_code:
                raise Unreachable(
                    f"Kafka cannot describe the dead-letter topic {topic!r} now (error {described.error_code})"
                )
            self._leaders[topic] = described.leaders

    async def _write(self, dead_letters: Sequence[DeadLetter], within_s: float) -> None:
        queues = self._queues(dead_letters)
        try:
            async with asyncio.timeout(within_s):
                while queues:
                    if not await self._write_once(queues, within_s):
                        await asyncio.sleep(RETRY_S)
                        await self._look_up_again({each.topic for each in queues}, within_s)
        except TimeoutError:
            left = sum(len(batch) for queue in queues.values() for batch in queue)
            raise too_late(left, len(dead_letters), within_s) from None

    async def _look_up_again(self, topics: set[str], within_s: float) -> None:
        # Until the time is over: then the failure counts what is left.
        with suppress(Unreachable):
            await self._look_up(sorted(topics), within_s)

    async def _write_once(self, queues: dict[Partition, Queue], within_s: float) -> bool:
        """Send the first batch of each partition, and remove what is acknowledged. False: one was not."""
        is_acknowledged = True
        for address, partitions in self._by_leader(queues).items():
            request = _request({each: queues[each][0] for each in partitions}, within_s)
            try:
                answer = await self._brokers.ask(address, request, within_s)
            except Unreachable:
                is_acknowledged = False
                continue
            for topic in answer.responses:
                for each in topic.partition_responses:
                    partition = Partition(topic.name, each.index)
                    is_acknowledged &= _advance(queues, partition, each.error_code)
        return is_acknowledged and not any(self._leader_of(each) is None for each in queues)

    def _by_leader(self, queues: Mapping[Partition, Queue]) -> Mapping[Address, Sequence[Partition]]:
        found: dict[Address, list[Partition]] = {}
        for partition in queues:
            address = self._leader_of(partition)
            if address is not None:
                found.setdefault(address, []).append(partition)
        return found

    def _leader_of(self, partition: Partition) -> Address | None:
        leaders = self._leaders[partition.topic]
        # A topic that was recreated meanwhile may have fewer partitions.
        return (
            self._addresses.get(leaders[partition.number].node) if partition.number < len(leaders) else None
        )

    def _queues(self, dead_letters: Sequence[DeadLetter]) -> dict[Partition, Queue]:
        """Return the batches of each partition, in order."""
        self._turn += 1
        by_partition: dict[Partition, list[DeadLetter]] = {}
        for each in dead_letters:
            count = len(self._leaders[each.topic])
            number = (self._turn if each.key is None else murmur2(each.key)) % count
            by_partition.setdefault(Partition(each.topic, number), []).append(each)
        return {partition: deque(_batches(records)) for partition, records in by_partition.items()}


def _batches(records: Sequence[DeadLetter]) -> Iterator[Sequence[DeadLetter]]:
    """Yield the records in batches within the limit, or of one record."""
    batch: list[DeadLetter] = []
    room = BATCH_BYTES_MAX
    for each in records:
        size = _size(each)
        if batch and size > room:
            yield batch
            batch, room = [], BATCH_BYTES_MAX
        batch.append(each)
        room -= size
    if batch:
        yield batch


def _size(record: DeadLetter) -> int:
    headers = sum(
        len(name.encode()) + len(value or b"") + 2 * OVERHEAD_BYTES for name, value in record.headers
    )
    return len(record.key or b"") + len(record.value or b"") + headers + OVERHEAD_BYTES


def _request(batches: Mapping[Partition, Sequence[DeadLetter]], within_s: float) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    topics: dict[str, list[object]] = {}
    for partition, batch in batches.items():
        topics.setdefault(partition.topic, []).append(
            data.PartitionProduceData(index=partition.number, records=encode(batch))
        )
    return ProduceRequest(
        transactional_id=None,
        acks=ALL_IN_SYNC,
        timeout_ms=max(int(within_s * 1000), 1),
        topic_data=[data(name=name, partition_data=partitions) for name, partitions in topics.items()],
    )


def _advance(queues: dict[Partition, Queue], partition: Partition, error_code: int) -> bool:
    """Take the broker's response to the first batch of a partition; return True if the next one can follow. Raises Refused."""
    queue = queues[partition]
    batch = queue[0]
    if not error_code:
        queue.popleft()
        if not queue:
            del queues[partition]
        return True
    if error_code in TOO_LARGE and len(batch) > 1:
        # Each of them may be small enough.
        half = len(batch) // 2
        queue[0] = batch[half:]
        queue.appendleft(batch[:half])
        return True
    if error_code in REFUSALS:
        raise Refused(rejection_of(partition.topic, REFUSALS[error_code]))
    return False
