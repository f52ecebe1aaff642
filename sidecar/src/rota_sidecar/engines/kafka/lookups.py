"""
ListOffsets of Kafka's brokers: log start, log end, timestamps. Used by `reading.py`.

Each lookup creates an admin client, as lookups are rare and librdkafka's consumer does not return a record's timestamp.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo, OffsetSpec, TimestampSpec

from rota_sidecar.core.delivery.events import Bounds
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.librdkafka import UNKNOWN, connection_config, failure_of, reason_of
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.kafka.topics import KafkaTopics
from rota_sidecar.engines.records import OffsetAndTimestamp

Found = TypeVar("Found")
NO_RECORD = -1


@dataclass(frozen=True, slots=True)
class Lookup:
    """A lookup. Each of its requests has a timeout of `within_s` seconds."""

    settings: KafkaSettings
    within_s: float
    _: KW_ONLY
    read_committed: bool

    async def bounds(self, partitions: Collection[Partition]) -> Mapping[Partition, Bounds]:
        """Return the bounds of the partitions that exist. Raises Unreachable, Refused."""
        partitions = await self._existing(partitions)
        if not partitions:
            return {}
        # confluent-kafka has no types for these.
        earliest: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        # Starts first: a start that moves meanwhile stays below the end.
        starts, ends = await asyncio.to_thread(
            self._ask, [dict.fromkeys(partitions, earliest), dict.fromkeys(partitions, latest)]
        )
        return {
            each: Bounds(starts[each].offset, ends[each].offset)
            for each in partitions
            if each in starts and each in ends
        }

    async def at_times(self, times: Mapping[Partition, int]) -> Mapping[Partition, OffsetAndTimestamp]:
        """Return the first record at or after each timestamp in milliseconds, if there is one. Raises Unreachable, Refused."""
        partitions = await self._existing(times)
        if not partitions:
            return {}
        specs = {each: TimestampSpec(times[each]) for each in partitions}
        (found,) = await asyncio.to_thread(self._ask, [specs])
        return {
            each: OffsetAndTimestamp(info.offset, info.timestamp)
            for each, info in found.items()
            if info.offset != NO_RECORD
        }

    async def _existing(self, partitions: Collection[Partition]) -> Sequence[Partition]:
        """Return the existing ones: librdkafka waits for the leader of a missing or unauthorized one until the timeout."""
        topics = KafkaTopics(self.settings)
        try:
            names = {each.topic for each in partitions}
            described = await topics.describe(sorted(names), self.within_s) if names else {}
        finally:
            await topics.close()
        counts = {name: topic.partitions for name, topic in described.items()}
        return [each for each in partitions if each.number < counts.get(each.topic, 0)]

    def _ask(
        self, requests: Sequence[Mapping[Partition, OffsetSpec]]
    ) -> list[dict[Partition, ListOffsetsResultInfo]]:
        """Send the requests; runs in a worker thread, as creating and closing the client blocks."""
        isolation = IsolationLevel.READ_COMMITTED if self.read_committed else IsolationLevel.READ_UNCOMMITTED
        reasons: list[str] = []
        try:
            client = AdminClient(
                connection_config(self.settings),  # type: ignore[arg-type]  # callbacks are missing in its types
                error_cb=lambda error: reasons.append(reason_of(error)),
            )
            responses = [
                client.list_offsets(
                    {TopicPartition(*each): spec for each, spec in request.items()},
                    isolation_level=isolation,
                    request_timeout=self.within_s,
                )
                for request in requests
            ]
            return [
                {
                    Partition(each.topic, each.partition): info
                    for each, future in response.items()
                    if (info := _info(future)) is not None
                }
                for response in responses
            ]
        except KafkaException as error:
            reason = "; ".join(dict.fromkeys([*reasons, reason_of(error.args[0])]))
            raise failure_of(
                error.args[0], f"Kafka did not return offsets ({reason}); check that it is running"
            ) from None


def _info(future: "Future[ListOffsetsResultInfo]") -> ListOffsetsResultInfo | None:
    try:
        return future.result()
    except KafkaException as error:
        if error.args[0].code() in UNKNOWN:
            return None
        raise
