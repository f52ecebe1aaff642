"""
Offsets by what they stand for, asked of Kafka's brokers: starts, ends, points in time. For `reading.py`.

Asked with a client of its own, once in a while: librdkafka's consumer does not say of what time a record is.
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
    """Each call has its own time."""

    settings: KafkaSettings
    within_s: float
    _: KW_ONLY
    read_committed: bool

    async def bounds(self, partitions: Collection[Partition]) -> Mapping[Partition, Bounds]:
        """Of those that are there. Raises Unreachable, Refused."""
        partitions = await self._those_there(partitions)
        if not partitions:
            return {}
        # They have no types.
        earliest: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        # In this order: a start that moves meanwhile is not above the end.
        starts, ends = await asyncio.to_thread(
            self._ask, [dict.fromkeys(partitions, earliest), dict.fromkeys(partitions, latest)]
        )
        return {
            each: Bounds(starts[each].offset, ends[each].offset)
            for each in partitions
            if each in starts and each in ends
        }

    async def at_times(self, times: Mapping[Partition, int]) -> Mapping[Partition, OffsetAndTimestamp]:
        """Raises Unreachable, Refused."""
        partitions = await self._those_there(times)
        if not partitions:
            return {}
        asked = {each: TimestampSpec(times[each]) for each in partitions}
        (found,) = await asyncio.to_thread(self._ask, [asked])
        return {
            each: OffsetAndTimestamp(info.offset, info.timestamp)
            for each, info in found.items()
            if info.offset != NO_RECORD
        }

    async def _those_there(self, partitions: Collection[Partition]) -> Sequence[Partition]:
        """librdkafka finds no leader of a partition that does not exist, and none of one that is not for us."""
        topics = KafkaTopics(self.settings)
        try:
            names = {each.topic for each in partitions}
            described = await topics.describe(sorted(names), self.within_s) if names else {}
        finally:
            await topics.close()
        counts = {name: topic.partitions for name, topic in described.items()}
        return [each for each in partitions if each.number < counts.get(each.topic, 0)]

    def _ask(
        self, questions: Sequence[Mapping[Partition, OffsetSpec]]
    ) -> list[dict[Partition, ListOffsetsResultInfo]]:
        """In a thread: setting the client up and ending it takes a while."""
        isolation = IsolationLevel.READ_COMMITTED if self.read_committed else IsolationLevel.READ_UNCOMMITTED
        reasons: list[str] = []
        try:
            client = AdminClient(
                connection_config(self.settings),
                error_cb=lambda error: reasons.append(reason_of(error)),
            )
            answers = [
                client.list_offsets(
                    {TopicPartition(*each): spec for each, spec in question.items()},
                    isolation_level=isolation,
                    request_timeout=self.within_s,
                )
                for question in questions
            ]
            return [
                {
                    Partition(each.topic, each.partition): info
                    for each, future in answer.items()
                    if (info := _info(future)) is not None
                }
                for answer in answers
            ]
        except KafkaException as error:
            reason = "; ".join(dict.fromkeys([*reasons, reason_of(error.args[0])]))
            raise failure_of(
                error.args[0], f"Kafka gives no offsets now ({reason}): check that it runs"
            ) from None


def _info(future: "Future[ListOffsetsResultInfo]") -> ListOffsetsResultInfo | None:
    try:
        return future.result()
    except KafkaException as error:
        if error.args[0].code() in UNKNOWN:
            return None
        raise
