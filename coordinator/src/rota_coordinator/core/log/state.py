"""
State of the log. Events and batch headers come in, live or from the store; replaying them is the only way to change it.

Called by the decisions, which write through it, and by `log` on loading. Loading replays all events first and then all
headers, so the state must not depend on how the two were interleaved when they were written.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rota_coordinator.core.instants import WallClock, WallMs
from rota_coordinator.core.log.batch import Control, Header, Row
from rota_coordinator.core.log.config import PRODUCER_IDS_AT_ONCE, LogConfig
from rota_coordinator.core.log.effects import Effects
from rota_coordinator.core.log.partition import Partition
from rota_coordinator.core.log.producers import Producers
from rota_coordinator.core.log.topics import Topics, replay_cleaned
from rota_proto.coordinator.v1.log_events_pb2 import LogEvent, ProducerIdsAllocated


@dataclass(slots=True)
class State:
    """Topics, producers, and the partitions of each open transaction."""

    config: LogConfig
    wall: WallClock
    topics: Topics = field(init=False)
    producers: Producers = field(init=False)
    # Producer id -> the logs that its open transaction has written to.
    _written_to: dict[int, set[int]] = field(default_factory=dict)
    # Producer ids that an event allocated and that are not assigned yet; lost with the process.
    _unused_ids: range = range(0)

    def __post_init__(self) -> None:
        self.topics = Topics(self.config)
        self.producers = Producers(wall=self.wall)

    def write(self, event: LogEvent, effects: Effects) -> None:
        """Add an event to the effects to be written, and replay it."""
        effects.events.append(event)
        self.replay(event)

    def append(self, row: Row, effects: Effects) -> None:
        """Add a batch to the effects to be written, and replay its header."""
        effects.rows.append(row)
        self.replay_batch(row.log_id, row.header)

    def replay(self, event: LogEvent) -> None:
        """Apply an event; called in write order."""
        match event.WhichOneof("event"):
            case "topic_created":
                self.topics.made(event.topic_created)
            case "topic_deleted":
                for partition in self.topics.gone(event.topic_deleted):
                    self._forget_open(partition)
            case "start_moved":
                moved = self.topics.log(event.start_moved.log_id)
                if moved is not None:
                    moved.move_start(event.start_moved.offset)
            case "log_cleaned":
                cleaned = self.topics.log(event.log_cleaned.log_id)
                if cleaned is not None:
                    replay_cleaned(cleaned, event.log_cleaned)
            case _:
                self.producers.replay(event)

    def replay_batch(self, log_id: int, header: Header) -> None:
        """Apply a batch header; called per log in offset order."""
        partition = self.topics.log(log_id)
        if partition is None or header.next_offset <= partition.start:
            return  # a log of a deleted topic, whose rows are not deleted yet
        partition.add(header)
        if header.control is not Control.RECORDS:
            self._closed(header.producer_id, log_id)
        elif header.transactional:
            self._written_to.setdefault(header.producer_id, set()).add(log_id)

    def allocate_producer_id(self, effects: Effects) -> int:
        """Return an id that no producer has had."""
        if not self._unused_ids:
            first = self.producers.next_producer_id
            self._unused_ids = range(first, first + PRODUCER_IDS_AT_ONCE)
            taken = ProducerIdsAllocated(next_producer_id=self._unused_ids.stop)
            self.write(LogEvent(producer_ids_allocated=taken), effects)
        producer_id, self._unused_ids = self._unused_ids[0], self._unused_ids[1:]
        return producer_id

    def partitions_of(self, producer_id: int) -> list[Partition]:
        """Return the partitions that the producer's open transaction has written to."""
        logs = map(self.topics.log, sorted(self._written_to.get(producer_id, ())))
        return [partition for partition in logs if partition is not None]

    def may_write_to(self, producer_id: int, log_id: int) -> bool:
        """Return whether the producer's transaction may include this partition."""
        logs = self._written_to.get(producer_id, ())
        return log_id in logs or len(logs) < self.config.transaction_partitions_max

    def written(self, rows: Sequence[Row]) -> None:
        """Advance the high watermarks past rows that are stored."""
        for row in rows:
            partition = self.topics.log(row.log_id)
            if partition is not None:
                partition.written(row.header)

    def rewritten(self, log_id: int, headers: Iterable[Header]) -> None:
        """Forget batches that compaction has removed or rewritten, as if the log were loaded again."""
        partition = self.topics.log(log_id)
        if partition is not None:
            partition.rewritten(headers)

    def loaded(self, now_ms: WallMs) -> None:
        """Finish loading, after all events and all headers were replayed."""
        for partition in self.topics:
            partition.loaded()
        self.producers.loaded(now_ms)

    def snapshot(self) -> Iterable[LogEvent]:
        """Return the events that restore the present state."""
        yield from self.topics.snapshot()
        yield from self.producers.snapshot()

    def _forget_open(self, partition: Partition) -> None:
        for producer_id in partition.open:
            self._closed(producer_id, partition.log_id)

    def _closed(self, producer_id: int, log_id: int) -> None:
        logs = self._written_to.get(producer_id, set())
        logs.discard(log_id)
        if not logs:
            self._written_to.pop(producer_id, None)
