"""
Records of Kafka: `Records` for the delivery's shell, on the event loop; the reading itself is done in a thread.

To be imported for a Kafka address only: librdkafka comes with it.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from rota_sidecar.core.delivery.events import Bounds, FetchError, Read, ReadFailed
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.consumption import Complaint, Consumption, Doubt, Failed, News
from rota_sidecar.engines.kafka.librdkafka import SENTENCES, Config, connection_config
from rota_sidecar.engines.kafka.lookups import Lookup
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.kafka.topic_watch import TopicWatch
from rota_sidecar.engines.records import At, Hear, Records, Wanted

# These may have another reason: that the topic is another one, or none.
DOUBTFUL = (FetchError.OUT_OF_RANGE, FetchError.UNKNOWN_TOPIC)

Complain = Callable[[str], None]
"""Called on the event loop when nothing can be read for now: one sentence, once; and an empty one when it is over."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How records are read."""

    # Shown to the brokers only: nobody joins it.
    group_id: str
    read_committed: bool
    # Batches come with the keys of their records.
    with_keys: bool


@dataclass(slots=True)
class Reading:
    """A partition that somebody reads."""

    delivery_epoch: int
    # Whether an answer is owed.
    is_waited_for: bool
    failure: ReadFailed | None = None


class KafkaRecords(Records):
    """To be made and used on a running loop."""

    def __init__(self, settings: KafkaSettings, hear: Hear, complain: Complain, manner: Manner) -> None:
        self._settings = settings
        self._hear = hear
        self._complain = complain
        self._manner = manner
        self._loop = asyncio.get_running_loop()
        self._readings: dict[Partition, Reading] = {}
        self._partitions: dict[int, Partition] = {}
        self._watch = TopicWatch(settings, self._not_there)
        self._consumption = Consumption(self._config, self._hear_of, with_keys=manner.with_keys)
        self._looks: set[asyncio.Task[None]] = set()
        self._closed = False

    def _config(self) -> Config:
        level = "read_committed" if self._manner.read_committed else "read_uncommitted"
        return {
            **connection_config(self._settings),
            "group.id": self._manner.group_id,
            "isolation.level": level,
        }

    @override
    def fetch(self, wanted: Wanted) -> None:
        reading = self._readings.get(wanted.partition)
        if reading is None or reading.delivery_epoch != wanted.delivery_epoch:
            if reading is not None:
                del self._partitions[reading.delivery_epoch]
            reading = self._readings[wanted.partition] = Reading(wanted.delivery_epoch, is_waited_for=True)
            self._partitions[wanted.delivery_epoch] = wanted.partition
            self._watch.forget(wanted.partition)
        reading.is_waited_for = True
        if reading.failure is not None:
            self._loop.call_soon(self._tell, reading.failure)
            return
        self._watch.watch(wanted.partition)
        self._consumption.want(wanted.partition, wanted)

    @override
    def stop(self, delivery_epoch: int) -> None:
        partition = self._partitions.pop(delivery_epoch, None)
        if partition is not None:
            del self._readings[partition]
            self._watch.forget(partition)
            self._consumption.want(partition, None)

    @override
    async def bounds(self, partitions: Collection[Partition], within_s: float) -> Mapping[Partition, Bounds]:
        return await self._lookup(within_s).bounds(partitions)

    @override
    async def at_times(self, times: Mapping[Partition, int], within_s: float) -> Mapping[Partition, At]:
        return await self._lookup(within_s).at_times(times)

    def _lookup(self, within_s: float) -> Lookup:
        return Lookup(self._settings, within_s, read_committed=self._manner.read_committed)

    @override
    async def close(self) -> None:
        self._closed = True
        self._readings.clear()
        self._partitions.clear()
        for task in self._looks:
            task.cancel()
        if self._looks:
            await asyncio.wait(self._looks)
        await self._watch.close()
        await asyncio.to_thread(self._consumption.close)

    # What the thread says

    def _hear_of(self, news: Sequence[News]) -> None:
        """In the thread."""
        self._loop.call_soon_threadsafe(self._receive, news)

    def _receive(self, news: Sequence[News]) -> None:
        for each in news:
            if self._closed:
                return
            match each:
                case Read():
                    self._tell(each)
                case Failed():
                    self._failed(each)
                case Doubt():
                    self._watch.doubt()
                case Complaint(sentence):
                    self._complain(sentence)

    def _tell(self, heard: Read | ReadFailed) -> None:
        """If it is still waited for."""
        partition = self._partitions.get(heard.delivery_epoch)
        reading = None if partition is None else self._readings[partition]
        if reading is not None and reading.is_waited_for:
            reading.is_waited_for = False
            # Asked once more it may be mended; but another topic stays another one.
            if reading.failure is not None and reading.failure.fetch_error is not FetchError.OTHER_TOPIC:
                reading.failure = None
            self._hear(heard)

    def _failed(self, failed: Failed) -> None:
        reading = self._readings.get(failed.partition)
        if reading is None or reading.delivery_epoch != failed.delivery_epoch or reading.failure is not None:
            return
        topic, number = failed.partition
        sentence = SENTENCES[failed.fetch_error].format(offset=failed.offset, topic=topic, partition=number)
        failure = ReadFailed(reading.delivery_epoch, failed.fetch_error, sentence)
        task = self._loop.create_task(self._fail(failed.partition, failure))
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)

    async def _fail(self, partition: Partition, failure: ReadFailed) -> None:
        if failure.fetch_error in DOUBTFUL:
            self._watch.doubt()
            await self._watch.look()
        self._end(partition, failure)

    def _not_there(self, partition: Partition, fetch_error: FetchError) -> None:
        reading = self._readings.get(partition)
        if reading is not None:
            self._consumption.want(partition, None)
            self._end(partition, ReadFailed(reading.delivery_epoch, fetch_error, SENTENCES[fetch_error]))

    def _end(self, partition: Partition, failure: ReadFailed) -> None:
        """The partition gives nothing more to this ledger; who does not ask now is told when asking."""
        reading = self._readings.get(partition)
        if reading is None or reading.delivery_epoch != failure.delivery_epoch or reading.failure is not None:
            return
        reading.failure = failure
        self._watch.forget(partition)
        self._tell(failure)
