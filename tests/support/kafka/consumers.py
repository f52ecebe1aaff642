"""Other clients in a group: confluent-kafka's consumer, the console's of the JVM, and how the broker sees who has what."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.kafka.brokers import Kafka
from tests.support.kafka.tools import console_consumer
from tests.support.processes import Process

Partition = tuple[str, int]
WITHIN_S = 60
POLL_S = 0.05
# The JVM's names of the strategies.
CLASSES = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
# Both are told of a rebalance by their next heartbeat, and have their sessions end soon.
HEARTBEAT_MS, SESSION_MS = 300, 6000
# Asked for groups the first time ever, a broker prepares for them.
NOT_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


class PlainConsumer:
    """A consumer of confluent-kafka that polls in a thread of its own."""

    def __init__(self, kafka: Kafka, topic: str, group: str, **settings: str | int) -> None:
        config: dict[str, str | int | float | bool] = {
            **kafka.client_config(),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        self._consumer = Consumer(
            {**config, **{name.replace("_", "."): each for name, each in settings.items()}}
        )
        self._consumer.subscribe([topic])
        self._closing = threading.Event()
        self._changed = threading.Condition()
        self._partitions: set[Partition] = set()
        self._error: KafkaError | None = None
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def wait_until_it_has(self, number: int) -> set[Partition]:
        """Its partitions, once there are so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._partitions) == number, WITHIN_S), self._partitions
            return set(self._partitions)

    def wait_until_it_fails(self) -> str:
        """Its first error."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._error is not None, WITHIN_S)
            assert self._error is not None
            return self._error.str()

    def leave(self) -> None:
        """End its membership."""
        self._closing.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._closing.is_set():
            message = self._consumer.poll(POLL_S)
            with self._changed:
                self._partitions = {(each.topic, each.partition) for each in self._consumer.assignment()}
                if message is not None and self._error is None:
                    self._error = message.error()
                self._changed.notify_all()
        self._consumer.close()


@contextmanager
def plain(kafka: Kafka, topic: str, group: str, strategy: str) -> Iterator[PlainConsumer]:
    """One of the classic protocol. Its client id is `plain`."""
    one = PlainConsumer(
        kafka,
        topic,
        group,
        client_id="plain",
        partition_assignment_strategy=strategy,
        heartbeat_interval_ms=HEARTBEAT_MS,
        session_timeout_ms=SESSION_MS,
    )
    try:
        yield one
    finally:
        one.leave()


@contextmanager
def newer(kafka: Kafka, topic: str, group: str) -> Iterator[PlainConsumer]:
    """One of Kafka's newer protocol, KIP-848: the broker assigns. Its client id is `newer`."""
    one = PlainConsumer(kafka, topic, group, client_id="newer", group_protocol="consumer")
    try:
        yield one
    finally:
        one.leave()


@contextmanager
def console(
    kafka: Kafka, topic: str, group: str, strategy: str, log: Path, login: Sequence[str] = ()
) -> Iterator[Process]:
    """The JVM's, with the properties of a login. Its client id is `console-consumer`."""
    properties = (
        f"partition.assignment.strategy={CLASSES[strategy]}",
        f"heartbeat.interval.ms={HEARTBEAT_MS}",
        f"session.timeout.ms={SESSION_MS}",
        *login,
    )
    process = console_consumer(kafka, topic, group, properties, log)
    try:
        yield process
    finally:
        process.stop()


def wait_for_shares(kafka: Kafka, group: str, expected: Mapping[str, int]) -> Mapping[str, set[Partition]]:
    """By client id, the partitions that the broker says each one has, once each has so many."""
    admin = AdminClient(kafka.client_config())
    deadline = time.monotonic() + WITHIN_S
    while True:
        shares = _shares(admin, group)
        if {name: len(share) for name, share in shares.items()} == dict(expected):
            return shares
        if time.monotonic() > deadline:
            raise AssertionError(f"{expected} was expected, and group {group} is {shares}")
        time.sleep(POLL_S)


def _shares(admin: AdminClient, group: str) -> Mapping[str, set[Partition]]:
    try:
        found = admin.describe_consumer_groups([group])[group].result(WITHIN_S)
    except KafkaException as error:
        if error.args[0].code() not in NOT_YET:
            raise
        return {}
    return {
        member.client_id: {(each.topic, each.partition) for each in member.assignment.topic_partitions}
        for member in found.members
    }
