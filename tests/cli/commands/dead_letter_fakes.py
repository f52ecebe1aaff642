"""A log in memory behind the command line's port: what no server does on demand, such as a commit between two fetches."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple, cast

from typing_extensions import override

from rota import errors
from rota.producer.api import Producer
from rota.producer.options import OnDelivery
from rota.records import Headers, Record, TopicPartition
from rota_cli.clusters.model import OffsetRange, Topic, TopicConfig
from rota_cli.clusters.port import FetchResult, Offsets, Records
from rota_cli.errors import unknown_topic

PAGE = 3


class Outcome(Enum):
    """Of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction:
    """Of one producer."""

    def __init__(self) -> None:
        self.outcome = Outcome.OPEN


class Stored(NamedTuple):
    """A record, and the transaction that it belongs to."""

    record: Record
    transaction: Transaction | None


class MemoryRecords(Records):
    """Topics in memory; `on_idle` runs when a fetch finds nothing new."""

    def __init__(self, **partitions: int) -> None:
        self.logs: dict[TopicPartition, list[Stored]] = {}
        self.counts = {name.replace("_", "-"): count for name, count in partitions.items()}
        for name, count in self.counts.items():
            self.logs |= {TopicPartition(name, number): [] for number in range(count)}
        self.on_idle: Callable[[], None] = lambda: None
        # Runs before each step of a producer, with its name.
        self.on_step: Callable[[str], None] = lambda step: None
        self.producers: dict[str, MemoryProducer] = {}

    def append(
        self,
        topic: str,
        value: bytes | None = b"",
        headers: Headers = (),
        *,
        partition: int = 0,
        timestamp_ms: int = 0,
        transaction: Transaction | None = None,
    ) -> int:
        """Append a record; return its offset."""
        log = self.logs[TopicPartition(topic, partition)]
        record: Record = Record(topic, partition, len(log), timestamp_ms, b"key", value, headers)
        log.append(Stored(record, transaction))
        return record.offset

    def committed(self, topic: str) -> list[Record]:
        """All that a reader of committed records is given, by partition."""
        return [
            stored.record
            for here, log in self.logs.items()
            for stored in log[: self._last_stable(here)]
            if here.topic == topic and is_visible(stored)
        ]

    def _last_stable(self, here: TopicPartition) -> int:
        opened = (
            stored.record.offset
            for stored in self.logs[here]
            if stored.transaction is not None and stored.transaction.outcome is Outcome.OPEN
        )
        return next(opened, len(self.logs[here]))

    @override
    def topics(self, names: Sequence[str] = ()) -> list[Topic]:
        missing = [name for name in names if name not in self.counts]
        if missing:
            raise unknown_topic(missing, "memory")
        return [Topic(name, self.counts[name]) for name in names or sorted(self.counts)]

    @override
    def ranges(
        self, partitions: Iterable[TopicPartition], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetRange]:
        return {
            here: OffsetRange(0, self._last_stable(here) if read_committed else len(self.logs[here]))
            for here in partitions
        }

    @override
    def read(self, offsets: Offsets, *, read_committed: bool) -> Iterator[FetchResult]:
        assert read_committed
        positions = dict(offsets)
        while True:
            records: list[Record] = []
            before = dict(positions)
            for here, offset in before.items():
                positions[here] = min(offset + PAGE, self._last_stable(here))
                stored = self.logs[here][offset : positions[here]]
                records += [each.record for each in stored if is_visible(each)]
            if positions == before:
                self.on_idle()
            yield FetchResult(records, dict(positions))

    @override
    def create(self, topic: Topic) -> None:
        raise NotImplementedError

    @override
    def add_partitions(self, topic: str, partitions: int) -> None:
        raise NotImplementedError

    @override
    def alter(self, topic: str, config: TopicConfig) -> None:
        raise NotImplementedError

    @override
    def delete(self, names: Sequence[str]) -> None:
        raise NotImplementedError

    @override
    def delete_records(self, partition: TopicPartition, before: int) -> int:
        raise NotImplementedError

    @override
    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        raise NotImplementedError

    @override
    def timestamps(self, offsets: Offsets, *, read_committed: bool = False) -> dict[TopicPartition, int]:
        raise NotImplementedError

    @override
    def unreadable(self, offsets: Offsets) -> Offsets:
        raise NotImplementedError

    @override
    def producer(self, on_delivery: OnDelivery) -> Producer:
        raise NotImplementedError

    @override
    def transactional_producer(self, transactional_id: str) -> Producer:
        return cast("Producer", MemoryProducer(self, transactional_id))

    @override
    def close(self) -> None:
        """Nothing is open."""


class Killed(BaseException):
    """The process ends here, without a clean-up."""


class MemoryProducer:
    """A transactional producer: as the real one, but for a kill, after which it does nothing more."""

    def __init__(self, records: MemoryRecords, transactional_id: str) -> None:
        self._records = records
        self._transactional_id = transactional_id
        self._transaction: Transaction | None = None
        self._is_fenced = False

    def init_transactions(self) -> None:
        earlier = self._records.producers.get(self._transactional_id)
        if earlier is not None:
            earlier.fence()
        self._records.producers[self._transactional_id] = self

    def fence(self) -> None:
        self._is_fenced = True
        self._end(Outcome.ABORTED)

    def _end(self, outcome: Outcome) -> None:
        if self._transaction is not None and self._transaction.outcome is Outcome.OPEN:
            self._transaction.outcome = outcome

    def _step(self, name: str) -> None:
        self._records.on_step(name)
        if self._is_fenced:
            raise errors.ProducerFenced("memory")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._transaction = Transaction()
        try:
            yield
            self.commit_transaction()
        except (Killed, errors.UndecidedCommit):
            raise
        except BaseException:
            self._end(Outcome.ABORTED)
            raise

    def commit_transaction(self) -> None:
        self._step("commit")
        self._end(Outcome.COMMITTED)
        self._records.on_step("committed")

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> None:
        self._step("send")
        log = self._records.logs[TopicPartition(topic, partition)]
        record = Record(topic, partition, len(log), timestamp_ms or 0, key, value, headers)
        log.append(Stored(record, self._transaction))

    def close(self) -> None:
        """Nothing is open."""


def is_visible(stored: Stored) -> bool:
    """Return whether a reader of committed records is given this one."""
    return stored.transaction is None or stored.transaction.outcome is Outcome.COMMITTED


def dead_letter_headers(
    topic: str = "orders",
    partition: int = 0,
    offset: int = 0,
    *,
    reason: str = "KeyError: 'price'",
    group: str = "billing",
    deliveries: int = 6,
) -> list[tuple[str, bytes | None]]:
    """As a sidecar writes them, after the record's own."""
    origin = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": 0,
        "reason": reason,
        "deliveries": deliveries,
        "group": group,
    }
    return [("kind", b"new"), *((f"rota-dlq-{name}", str(value).encode()) for name, value in origin.items())]
