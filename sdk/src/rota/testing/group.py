"""`rota.testing.Group`: topics and one group in memory."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self, Unpack

from rota.clocks import system_clocks
from rota.connection import background
from rota.consumer.api import Consumer
from rota.consumer.async_api import AsyncConsumer
from rota.consumer.options import Options, Settings, options_of
from rota.handlers.handler import Handler, check_together
from rota.handlers.runner import ORDERINGS, Runner
from rota.producer.partitioner import hash_of
from rota.records import Headers, Record, RecordMetadata, TopicPartition
from rota.testing.partition import DeadLetter, StoredRecord
from rota.testing.sidecar import MemorySidecar, Reset
from rota.testing.transport import MemoryTransport

PARTITIONS = 3
RUN_S = 60.0
PartitionLike = tuple[str, int]


class Group:
    """
    A group with one member and its topics, in memory.

    >>> @rota.handler("orders")
    ... def bill(record):
    ...     if record.value == b"bad":
    ...         raise rota.DeadLetter("it is bad")
    >>> with rota.testing.Group() as group:
    ...     _ = group.send("orders", b"good"), group.send("orders", b"bad")
    ...     group.run(bill)
    ...     [dead_letter.reason for dead_letter in group.dead_letters]
    ['it is bad']

    Verdicts have the effect that they have with a real sidecar. Time is virtual: a retry does not wait, it advances `now_ms`.
    """

    def __init__(
        self,
        group_id: str = "test",
        *,
        partitions: int = PARTITIONS,
        retries: int = 5,
        auto_offset_reset: Reset = "earliest",
    ) -> None:
        """
        Create a group; topics are created on first use, with so many partitions.

        `auto_offset_reset` is the start position without a committed offset, and where the committed one was deleted; with `none`
        the consumer's `poll` raises, as with a real sidecar.
        """
        self.group_id = group_id
        self._partitions = partitions
        self._sidecar = MemorySidecar(group_id, retries=retries, reset=auto_offset_reset)
        self._sent = 0
        self._consumers: list[Consumer] = []

    # Records

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic with so many partitions, or increase its number."""
        self._sidecar.make_topic(topic, partitions)

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Append a record to a topic, as a producer would: by partition, else by key, else round-robin."""
        self._make(topic)
        count = len(self._sidecar.topics[topic])
        if partition is None:
            partition = self._sent % count if key is None else hash_of(key) % count
        self._sent += 1
        time = self._sidecar.now_ms if timestamp_ms is None else timestamp_ms
        topic_partition = TopicPartition(topic, partition)
        offset = self._sidecar.append(topic_partition, StoredRecord(key, value, time, tuple(headers or ())))
        return RecordMetadata(topic, partition, offset, time)

    def _make(self, topic: str) -> None:
        if topic not in self._sidecar.topics:
            self._sidecar.make_topic(topic, self._partitions)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete all records before this offset, as retention does."""
        self._sidecar.delete_records(TopicPartition(topic, partition), before)

    def records(self, topic: str) -> list[Record]:
        """Return all records of a topic that were not deleted, partition by partition."""
        return [record for each in self._sidecar.topics.get(topic, ()) for record in each.records()]

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """Records that failed permanently, with reason and number of deliveries."""
        return [dead_letter for each in self._sidecar.all_partitions() for dead_letter in each.dead_letters]

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """Committed offsets of the group."""
        return dict(self._sidecar.committed())

    @property
    def now_ms(self) -> int:
        """Virtual time in ms, which only retries advance."""
        return self._sidecar.now_ms

    # Consumers

    def run(self, *handlers: Handler) -> None:
        """Run handlers until every record has its verdict. Their exceptions have the same effect as with a real sidecar."""
        check_together(handlers)
        for each in handlers:
            for topic in each.topics:
                self._make(topic)
        self._sidecar.ordering = ORDERINGS[handlers[0].ordering]
        self._sidecar.concurrency = handlers[0].concurrency
        background().run(self._run(handlers), RUN_S)

    async def _run(self, handlers: tuple[Handler, ...]) -> None:
        runner = Runner(handlers, MemoryTransport(self._sidecar), self.group_id, system_clocks().monotonic_s)
        runner.is_done = lambda: self._sidecar.is_done
        await runner.run()

    def consumer(self, *topics: str, **settings: Unpack[Settings]) -> Consumer:
        """Create a `rota.Consumer` of this group; one at a time. It is closed with the group."""
        consumer = Consumer.over(MemoryTransport(self._sidecar), self._options(topics, settings))
        self._consumers.append(consumer)
        if topics:
            consumer.subscribe(topics)
        return consumer

    def async_consumer(self, **settings: Unpack[Settings]) -> AsyncConsumer:
        """Create a `rota.AsyncConsumer` of this group; the caller closes it."""
        return AsyncConsumer.over(MemoryTransport(self._sidecar), self._options((), settings))

    def _options(self, topics: Iterable[str], settings: Settings) -> Options:
        for topic in topics:
            self._make(topic)
        return options_of({"sidecar": "memory", "group_id": self.group_id, **settings})

    # Rebalances

    def take_away(self, *partitions: PartitionLike) -> None:
        """
        Let another member join the group and get these partitions: they are revoked.

        >>> group.take_away(("orders", 0))                  # doctest: +SKIP
        >>> consumer.poll()         # calls on_partitions_revoked                             # doctest: +SKIP
        """
        with self._sidecar.lock:
            self._sidecar.owned_by_others.update(TopicPartition(*each) for each in partitions)
            self._sidecar.rebalance()

    def give_back(self, *partitions: PartitionLike) -> None:
        """Let the other member leave the group: these partitions are assigned again."""
        with self._sidecar.lock:
            self._sidecar.owned_by_others.difference_update(TopicPartition(*each) for each in partitions)
            self._sidecar.rebalance()

    def lose(self, *partitions: PartitionLike, reason: str = "the session has expired") -> None:
        """Expire the member's session: these partitions are lost without a revocation."""
        self._sidecar.lose([TopicPartition(*each) for each in partitions], reason)

    def expire(self) -> None:
        """Expire the deadline of pending revocations."""
        self._sidecar.expire()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for consumer in self._consumers:
            consumer.close()
