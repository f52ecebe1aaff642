"""
Records of Kafka: implements `Records` on the event loop; the consumer runs in the thread of `consumption.py`.

Fetches go to the thread, its events come back to the loop in order. Imported for a Kafka address only, because it loads
librdkafka.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from rota_sidecar.core.delivery.events import Bounds, FetchError, Read, ReadFailed
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.consumption import (
    FETCH_WAIT_MS,
    ConsumerEvent,
    Consumption,
    Failed,
    Outage,
    TopicSuspected,
)
from rota_sidecar.engines.kafka.fetch_errors import message_of
from rota_sidecar.engines.kafka.librdkafka import Config, connection_config
from rota_sidecar.engines.kafka.lookups import Lookup
from rota_sidecar.engines.kafka.read_options import OnOutage, ReadOptions
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.kafka.topic_watch import TopicWatch
from rota_sidecar.engines.records import (
    FetchLimits,
    FetchRequest,
    OffsetAndTimestamp,
    OnFetchResult,
    Records,
)

# Errors whose cause may be that the topic was deleted, or recreated: the topic is checked before they are reported.
AMBIGUOUS = (FetchError.OUT_OF_RANGE, FetchError.UNKNOWN_TOPIC)

# Default and lowest value of librdkafka's message.max.bytes.
MESSAGE_BYTES, MESSAGE_BYTES_MIN = 1_000_000, 1_000


@dataclass(slots=True)
class Reading:
    """A partition that is consumed. Invariant: after `failure` is set, fetches end with it."""

    delivery_epoch: int
    # True while a fetch has no result.
    is_pending: bool
    failure: ReadFailed | None = None


class KafkaRecords(Records):
    """
    Must be created and used on a running loop.

    Invariant: each partition is consumed for one delivery epoch, the one fetched last; results of others are dropped.
    """

    def __init__(
        self, settings: KafkaSettings, on_result: OnFetchResult, on_outage: OnOutage, options: ReadOptions
    ) -> None:
        self._settings = settings
        self._on_result = on_result
        self._on_outage = on_outage
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._readings: dict[Partition, Reading] = {}
        self._partitions: dict[int, Partition] = {}
        self._watch = TopicWatch(settings, self._on_topic_error)
        self._consumption = Consumption(self._config, self._post_events, with_keys=options.with_keys)
        self._checks: set[asyncio.Task[None]] = set()
        self._closed = False

    def _config(self) -> Config:
        level = "read_committed" if self._options.read_committed else "read_uncommitted"
        return {
            **fetch_config(self._options.limits),
            # With the properties of --config, which replace the limits.
            **connection_config(self._settings),
            "group.id": self._options.group_id,
            "isolation.level": level,
        }

    @override
    def fetch(self, request: FetchRequest) -> None:
        reading = self._readings.get(request.partition)
        if reading is None or reading.delivery_epoch != request.delivery_epoch:
            if reading is not None:
                del self._partitions[reading.delivery_epoch]
            reading = self._readings[request.partition] = Reading(request.delivery_epoch, is_pending=True)
            self._partitions[request.delivery_epoch] = request.partition
            self._watch.forget(request.partition)
        reading.is_pending = True
        if reading.failure is not None:
            self._loop.call_soon(self._complete, reading.failure)
            return
        self._watch.watch(request.partition)
        self._consumption.set_request(request.partition, request)

    @override
    def stop(self, delivery_epoch: int) -> None:
        partition = self._partitions.pop(delivery_epoch, None)
        if partition is not None:
            del self._readings[partition]
            self._watch.forget(partition)
            self._consumption.set_request(partition, None)

    @override
    async def bounds(self, partitions: Collection[Partition], within_s: float) -> Mapping[Partition, Bounds]:
        return await self._lookup(within_s).bounds(partitions)

    @override
    async def at_times(
        self, times: Mapping[Partition, int], within_s: float
    ) -> Mapping[Partition, OffsetAndTimestamp]:
        return await self._lookup(within_s).at_times(times)

    def _lookup(self, within_s: float) -> Lookup:
        return Lookup(self._settings, within_s, read_committed=self._options.read_committed)

    @override
    async def close(self) -> None:
        self._closed = True
        self._readings.clear()
        self._partitions.clear()
        for task in self._checks:
            task.cancel()
        if self._checks:
            await asyncio.wait(self._checks)
        await self._watch.close()
        await asyncio.to_thread(self._consumption.close)

    # Events of the consumer's thread

    def _post_events(self, events: Sequence[ConsumerEvent]) -> None:
        """Pass events on to the loop; called in the consumer's thread."""
        self._loop.call_soon_threadsafe(self._on_events, events)

    def _on_events(self, events: Sequence[ConsumerEvent]) -> None:
        for each in events:
            if self._closed:
                return
            match each:
                case Read():
                    self._complete(each)
                case Failed():
                    self._failed(each)
                case TopicSuspected():
                    self._watch.suspect()
                case Outage(message):
                    self._on_outage(message)

    def _complete(self, result: Read | ReadFailed) -> None:
        """Call back with a result if its fetch is still pending."""
        partition = self._partitions.get(result.delivery_epoch)
        reading = None if partition is None else self._readings[partition]
        if reading is not None and reading.is_pending:
            reading.is_pending = False
            # The next fetch may succeed, except in a recreated topic.
            if reading.failure is not None and reading.failure.fetch_error is not FetchError.OTHER_TOPIC:
                reading.failure = None
            self._on_result(result)

    def _failed(self, failed: Failed) -> None:
        reading = self._readings.get(failed.partition)
        if reading is None or reading.delivery_epoch != failed.delivery_epoch or reading.failure is not None:
            return
        message = message_of(failed.fetch_error, failed.partition, failed.offset)
        failure = ReadFailed(reading.delivery_epoch, failed.fetch_error, message)
        task = self._loop.create_task(self._fail(failed.partition, failure))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _fail(self, partition: Partition, failure: ReadFailed) -> None:
        if failure.fetch_error in AMBIGUOUS:
            self._watch.suspect()
            await self._watch.check()
        self._end(partition, failure)

    def _on_topic_error(self, partition: Partition, fetch_error: FetchError) -> None:
        reading = self._readings.get(partition)
        if reading is not None:
            self._consumption.set_request(partition, None)
            message = message_of(fetch_error, partition, -1)
            self._end(partition, ReadFailed(reading.delivery_epoch, fetch_error, message))

    def _end(self, partition: Partition, failure: ReadFailed) -> None:
        """Fail the pending fetch of this delivery epoch, or else its next one."""
        reading = self._readings.get(partition)
        if reading is None or reading.delivery_epoch != failure.delivery_epoch or reading.failure is not None:
            return
        reading.failure = failure
        self._watch.forget(partition)
        self._complete(failure)


def fetch_config(limits: FetchLimits) -> dict[str, int]:
    """Return librdkafka's properties for the limits of a fetch, without those that are its client's own."""
    config: dict[str, int] = {
        "fetch.min.bytes": limits.min_bytes,
        "fetch.wait.max.ms": limits.wait_ms(FETCH_WAIT_MS),
    }
    if limits.max_bytes is not None:
        config["fetch.max.bytes"] = max(limits.max_bytes, MESSAGE_BYTES_MIN)
        # librdkafka's default, and the lower bound of its fetch.max.bytes. A consumer sends nothing as large.
        config["message.max.bytes"] = min(config["fetch.max.bytes"], MESSAGE_BYTES)
    return config
