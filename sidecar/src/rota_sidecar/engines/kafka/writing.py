"""
Dead letters to Kafka: `DeadLetterWriter` for the delivery's shell.

To be imported for a Kafka address only: librdkafka comes with it.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from typing_extensions import override

from rota_sidecar.engines.kafka.librdkafka import Config, connection_config, failure_of, reason_of
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.kafka.topics import KafkaTopics
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.records import DeadLetter, DeadLetterWriter

ANY_PARTITION = -1
TUNING: Config = {
    "acks": "all",
    "enable.idempotence": True,
    # Where Kafka's own clients put a key; librdkafka's default would put it elsewhere.
    "partitioner": "murmur2_random",
    # They are flushed at once.
    "linger.ms": 0,
    # A letter is a little larger than its record: whether it is too large is for the broker to say.
    "message.max.bytes": 100 << 20,
    # They lie in memory anyway, and there are few.
    "queue.buffering.max.messages": 0,
    "queue.buffering.max.kbytes": 256 << 10,
}


class KafkaDeadLetterWriter(DeadLetterWriter):
    """To be made and used on a running loop."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._topics = KafkaTopics(settings)
        self._known: set[str] = set()
        self._producer: Producer | None = None
        self._writing = asyncio.Lock()

    @override
    async def write(self, dead_letters: Sequence[DeadLetter], within_s: float) -> None:
        # One after the other: each call's time begins when it is its turn.
        async with self._writing:
            await self._see({dead_letter.topic for dead_letter in dead_letters}, within_s)
            await asyncio.to_thread(self._write, dead_letters, within_s)

    @override
    async def close(self) -> None:
        async with self._writing:
            await self._topics.close()
            self._producer = None

    async def _see(self, topics: set[str], within_s: float) -> None:
        """A producer would make a topic by naming it, where brokers do that."""
        missing = sorted(topics - self._known)
        if not missing:
            return
        self._known |= set(await self._topics.describe(missing, within_s))
        for topic in missing:
            if topic not in self._known:
                raise Refused(
                    f"the dead-letter topic {topic!r} does not exist: make it, or name another one in the group"
                )

    def _write(self, dead_letters: Sequence[DeadLetter], within_s: float) -> None:
        """In a thread."""
        producer = self._producer or self._made()
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
            # Before it tells that what is left was taken away.
            failure = (
                _failure(dead_letters[0].topic, errors) if errors else _too_late(left, dead_letters, within_s)
            )
            self._give_up(producer)
            raise failure

    def _made(self) -> Producer:
        try:
            return Producer({**TUNING, **connection_config(self._settings)})
        except KafkaException as error:
            raise Refused(
                f"Kafka's client cannot be set up ({reason_of(error.args[0])}): check its files"
            ) from None

    def _give_up(self, producer: Producer) -> None:
        """What is left must not come later; another producer begins anew, also with what is known."""
        producer.purge()
        producer.flush(0)
        self._producer = None
        self._known.clear()


def _failure(topic: str, errors: Sequence[KafkaError]) -> Unreachable | Refused:
    return failure_of(
        errors[0],
        f"Kafka does not take dead letters for {topic!r} ({reason_of(errors[0])}): "
        "see that the topic takes them, and that this user may write to it",
    )


def _too_late(left: int, dead_letters: Sequence[DeadLetter], within_s: float) -> Unreachable:
    return Unreachable(
        f"Kafka has not taken {left} of {len(dead_letters)} dead letters within {within_s:g} s: "
        "they are written again later"
    )


def _delivered(errors: list[KafkaError], error: KafkaError | None, _: Message) -> None:
    if error is not None:
        errors.append(error)
