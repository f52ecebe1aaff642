"""ListOffsets of Kafka's brokers over the sidecar's own connections: log start, log end, timestamps. Used by `reading.py`."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass

from kafka.protocol.consumer.offsets import ListOffsetsRequest, ListOffsetsResponse

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery.events import Bounds
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.metadata import NO_LEADER, Leader, Metadata
from rota_sidecar.engines.kafka.python_client.brokers import Brokers
from rota_sidecar.engines.kafka.settings import Address
from rota_sidecar.engines.kafka.topics import NO_TOPIC
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.records import OffsetAndTimestamp

# Timestamps with a meaning of their own.
EARLIEST, LATEST = -2, -1
NO_RECORD = -1
RETRY_S = 0.2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


@dataclass(frozen=True, slots=True)
class Lookup:
    """A lookup. All its requests together have a timeout of `within_s` seconds."""

    brokers: Brokers
    within_s: float
    _: KW_ONLY
    read_committed: bool

    async def bounds(self, partitions: Collection[Partition]) -> Mapping[Partition, Bounds]:
        """Return the bounds of the partitions that exist. Raises Unreachable, Refused."""
        # Starts first: a start that moves meanwhile stays below the end.
        starts = await self._look_up(dict.fromkeys(partitions, EARLIEST))
        ends = await self._look_up(dict.fromkeys(starts, LATEST))
        return {each: Bounds(starts[each].offset, end.offset) for each, end in ends.items()}

    async def at_times(self, times: Mapping[Partition, int]) -> Mapping[Partition, OffsetAndTimestamp]:
        """Return the first record at or after each timestamp in milliseconds, if there is one. Raises Unreachable, Refused."""
        found = await self._look_up(times)
        return {each: found[each] for each in found if found[each].offset != NO_RECORD}

    async def _look_up(self, times: Mapping[Partition, int]) -> dict[Partition, OffsetAndTimestamp]:
        """Ask until every partition that exists has an answer: leaders may move meanwhile."""
        found: dict[Partition, OffsetAndTimestamp] = {}
        left = dict(times)
        reason = "its partitions have no leader"
        try:
            async with asyncio.timeout(self.within_s):
                while left:
                    metadata = await self._describe(left)
                    left = {each: times[each] for each in _existing(metadata, left)}
                    for address, asked in _by_leader(metadata, left).items():
                        answer = await self._ask(address, asked)
                        reason = _add(answer, found) or reason
                    left = {each: time for each, time in left.items() if each not in found}
                    if left:
                        await asyncio.sleep(RETRY_S)
        except TimeoutError:
            raise Unreachable(
                f"Kafka did not return offsets within {self.within_s:g} s ({reason}); check that it is running"
            ) from None
        return found

    async def _describe(self, partitions: Collection[Partition]) -> Metadata:
        names = sorted({each.topic for each in partitions})
        metadata = await self.brokers.describe(names, self.within_s)
        for each in metadata.topics:
            if each.error_code == pb.TOPIC_AUTHORIZATION_FAILED:
                raise Refused(
                    f"Kafka does not authorize this user to describe topic {each.name!r}; allow it to describe and read "
                    "the topic"
                )
        return metadata

    async def _ask(
        self, address: Address, asked: Mapping[Partition, tuple[Leader, int]]
    ) -> ListOffsetsResponse:
        topics: dict[str, list[object]] = {}
        for partition, (leader, time) in asked.items():
            topics.setdefault(partition.topic, []).append(
                ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                    partition_index=partition.number, current_leader_epoch=leader.epoch, timestamp=time
                )
            )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=READ_COMMITTED if self.read_committed else READ_UNCOMMITTED,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        return await self.brokers.ask(address, request, self.within_s)


def _existing(metadata: Metadata, partitions: Collection[Partition]) -> list[Partition]:
    counts = {
        each.name: max(
            len(each.leaders), 0 if each.error_code in NO_TOPIC or not each.error_code else 1 << 31
        )
        for each in metadata.topics
    }
    return [each for each in partitions if each.number < counts.get(each.topic, 0)]


def _by_leader(
    metadata: Metadata, times: Mapping[Partition, int]
) -> Mapping[Address, Mapping[Partition, tuple[Leader, int]]]:
    """Return the partitions that have a leader, by its address, each with its leader and its time."""
    leaders = {each.name: each.leaders for each in metadata.topics}
    found: dict[Address, dict[Partition, tuple[Leader, int]]] = {}
    for partition, time in times.items():
        of_topic = leaders[partition.topic]
        leader = of_topic[partition.number] if partition.number < len(of_topic) else Leader(NO_LEADER, -1)
        if leader.node in metadata.brokers:
            found.setdefault(metadata.brokers[leader.node], {})[partition] = (leader, time)
    return found


def _add(answer: ListOffsetsResponse, found: dict[Partition, OffsetAndTimestamp]) -> str:
    """Add the offsets of an answer; return the reason why one is missing, which is asked for again. Raises Refused."""
    reason = ""
    for topic in answer.topics:
        for each in topic.partitions:
            if each.error_code == pb.TOPIC_AUTHORIZATION_FAILED:
                raise Refused(
                    f"Kafka does not authorize this user to describe topic {topic.name!r}; allow it to describe and read "
                    "the topic"
                )
            if each.error_code:
                reason = f"error {each.error_code} of {topic.name}-{each.partition_index}"
            else:
                partition = Partition(topic.name, each.partition_index)
                found[partition] = OffsetAndTimestamp(each.offset, each.timestamp)
    return reason
