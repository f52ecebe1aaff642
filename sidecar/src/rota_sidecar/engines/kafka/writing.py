"""
Writes dead letters to Kafka: implements `DeadLetterWriter` with librdkafka's producer.

Imported for a Kafka address only, because it loads librdkafka.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from typing_extensions import override

from rota_sidecar.engines.kafka.librdkafka import Config, connection_config, failure_of, reason_of
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.kafka.topics import KafkaTopics
from rota_sidecar.engines.kafka.write_errors import missing_topic, rejection_of, too_late
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.records import DeadLetter, DeadLetterWriter

ANY_PARTITION = -1
TUNING: Config = {
    "acks": "all",
    "enable.idempotence": True,
    # The partitioner of Kafka's Java clients; librdkafka's default chooses other partitions for the same key.
    "partitioner": "murmur2_random",
    # Each call flushes.
    "linger.ms": 0,
    # A dead letter is a little larger than its record; the broker decides whether it is too large.
    "message.max.bytes": 100 << 20,
    # No limit on the number: the records are in memory anyway, and few.
    "queue.buffering.max.messages": 0,
    "queue.buffering.max.kbytes": 256 << 10,
}


class KafkaDeadLetterWriter(DeadLetterWriter):
    """
    Must be created and used on a running loop.

    Invariant: one call writes at a time, and after a failed call nothing of it is written later.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._topics = KafkaTopics(settings)
        self._known: set[str] = set()
        self._producer: Producer | None = None
        self._writing = asyncio.Lock()

    @override
    async def write(self, dead_letters: Sequence[DeadLetter], within_s: float) -> None:
        # One call after the other; the time limit of a call starts when the call before it has ended.
        async with self._writing:
            await self._require_topics({dead_letter.topic for dead_letter in dead_letters}, within_s)
            await asyncio.to_thread(self._write, dead_letters, within_s)

    @override
    async def close(self) -> None:
        async with self._writing:
            await self._topics.close()
            self._producer = None

    async def _require_topics(self, topics: set[str], within_s: float) -> None:
        """
        Check that the topics exist: a producer that names a missing topic would create it where brokers allow that.

        Raises Unreachable, Refused.
        """
        missing = sorted(topics - self._known)
        if not missing:
            return
        self._known |= set(await self._topics.describe(missing, within_s))
        for topic in missing:
            if topic not in self._known:
                raise missing_topic(topic)

    def _write(self, dead_letters: Sequence[DeadLetter], within_s: float) -> None:
        """Produce and flush; runs in a worker thread."""
        producer = self._producer or self._create_producer()
        self._producer = producer
        errors: list[KafkaError] = []
        try:
            for dead_letter in dead_letters:
                producer.produce(
                    dead_letter.topic,
                    value=dead_letter.value,
                    key=dead_letter.key,
                    partition=ANY_PARTITION,
                    timestamp=max(dead_letter.timestamp_ms, 0),
                    headers=list(dead_letter.headers),
                    on_delivery=partial(_delivered, errors),
                )
            left = producer.flush(within_s)
        except KafkaException as error:
            errors.append(error.args[0])
            left = 0
        except BufferError:
            left = len(dead_letters)
        if errors or left:
            # Built before the purge, which reports the remaining messages as purged.
            failure = (
                _failure(dead_letters[0].topic, errors)
                if errors
                else too_late(left, len(dead_letters), within_s)
            )
            self._discard(producer)
            raise failure

    def _create_producer(self) -> Producer:
        try:
            return Producer({**TUNING, **connection_config(self._settings)})
        except KafkaException as error:
            raise Refused(
                f"the Kafka client cannot be created ({reason_of(error.args[0])}); check its certificate files"
            ) from None

    def _discard(self, producer: Producer) -> None:
        """Purge unsent messages, so that they are not written later; the next call creates a new producer."""
        producer.purge()
        producer.flush(0)
        self._producer = None
        self._known.clear()


def _failure(topic: str, errors: Sequence[KafkaError]) -> Unreachable | Refused:
    return failure_of(errors[0], rejection_of(topic, reason_of(errors[0])))


def _delivered(errors: list[KafkaError], error: KafkaError | None, _: Message) -> None:
    if error is not None:
        errors.append(error)
