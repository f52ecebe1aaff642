"""A partition of a group in memory: its log, and the delivery state of its records. Used by `rota.testing.sidecar`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from rota.records import Headers, Record, TopicPartition
from rota_proto.log.columns import CODEC, Columns, pack
from rota_proto.log.v1 import log_pb2
from rota_proto.sidecar.v1 import sidecar_pb2 as pb


class StoredRecord(NamedTuple):
    """A record of the in-memory log."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers


class DeadLetter(NamedTuple):
    """A record that failed permanently, the reason, and its number of deliveries."""

    record: Record
    reason: str
    deliveries: int


class RecordState(Enum):
    """Delivery states of a record."""

    IN_FLIGHT = 1
    # To be delivered again, not before its retry time.
    AWAITING_RETRY = 2
    DONE = 3


@dataclass(slots=True)
class Delivered:
    """Delivery state of a record that was dispatched since the last seek."""

    state: RecordState
    deliveries: int = 1
    due_ms: int = 0


DONE = Delivered(RecordState.DONE)


class MemoryPartition:
    """The log of a partition, and the delivery state of its records in the current delivery epoch."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.log: list[StoredRecord] = []
        # Log start offset.
        self.start = 0
        # Reason why the partition is not read, until a seek or a commit sets another offset.
        self.error: pb.PartitionErrorKind.ValueType = pb.PARTITION_ERROR_KIND_UNSPECIFIED
        self.committed: tuple[int, str] | None = None
        self.dead_letters: list[DeadLetter] = []
        self.delivery_epoch = 0
        self.tenure = 0
        self.is_paused = False
        # True while the application has acknowledged the assignment, and no revocation is pending.
        self.is_open = False
        # First offset that was not dispatched.
        self.next_offset = 0
        # Lowest offset without a verdict.
        self.position = 0
        self._delivered: dict[int, Delivered] = {}
        # Number of records to be delivered again.
        self._awaiting_retry = 0
        # RETRY verdicts in this delivery epoch.
        self.turn = 0

    def read_from(self, offset: int, delivery_epoch: int) -> None:
        """Continue at this offset; records in flight are void."""
        self._delivered.clear()
        self._awaiting_retry = 0
        self.turn = 0
        self.error = pb.PARTITION_ERROR_KIND_UNSPECIFIED
        self.next_offset, self.position, self.delivery_epoch = offset, offset, delivery_epoch

    @property
    def in_flight(self) -> int:
        """Number of dispatched records without a verdict."""
        return sum(each.state is RecordState.IN_FLIGHT for each in self._delivered.values())

    @property
    def is_done(self) -> bool:
        """Return whether every record has its verdict."""
        return self.position >= len(self.log)

    @property
    def retry_times_ms(self) -> list[int]:
        """Return the times of scheduled retries, in virtual milliseconds."""
        return [each.due_ms for each in self._delivered.values() if each.state is RecordState.AWAITING_RETRY]

    def next(self, ordering: pb.Ordering.ValueType, now_ms: int) -> int | None:
        """Return the next record that may be dispatched in this order."""
        if not self.is_open or self.is_paused or self.error:
            return None
        held_up: set[bytes] = set()
        for offset in self._candidates(ordering):
            delivered = self._delivered.get(offset)
            state = None if delivered is None else delivered.state
            if state is RecordState.DONE:
                continue
            key = self.log[offset].key
            waits = (
                delivered is not None and state is RecordState.AWAITING_RETRY and delivered.due_ms > now_ms
            )
            if state is not RecordState.IN_FLIGHT and not waits and key not in held_up:
                return offset
            if ordering == pb.ORDERING_KEY and key is not None:
                held_up.add(key)
        return None

    def _candidates(self, ordering: pb.Ordering.ValueType) -> range:
        """Return the offsets that the partition's order allows next."""
        if ordering != pb.ORDERING_PARTITION:
            return range(self.position, len(self.log))
        waiting = (at for at, each in self._delivered.items() if each.state is RecordState.AWAITING_RETRY)
        first = min(waiting, default=self.next_offset) if self._awaiting_retry else self.next_offset
        return range(first, min(first + 1, len(self.log)))

    def dispatch(self, offset: int) -> pb.PartitionRecords:
        """Dispatch a record; return it as a wire batch."""
        delivered = self._delivered.setdefault(offset, Delivered(RecordState.IN_FLIGHT, 0))
        self._awaiting_retry -= delivered.state is RecordState.AWAITING_RETRY
        delivered.state = RecordState.IN_FLIGHT
        delivered.deliveries += 1
        self.next_offset = max(self.next_offset, offset + 1)
        return pb.PartitionRecords(
            partition=pb.TopicPartition(
                topic=self.topic_partition.topic, partition=self.topic_partition.partition
            ),
            tenure=pb.Tenure(number=self.tenure),
            delivery_epoch=self.delivery_epoch,
            deliveries=delivered.deliveries,
            turn=self.turn,
            batches=[batch_of(offset, [self.log[offset]])],
            first_offset=offset,
        )

    def has(self, first: int, last: int) -> bool:
        """Return whether all these records are in flight."""
        found = [self._delivered.get(offset) for offset in range(first, last + 1)]
        return all(each is not None and each.state is RecordState.IN_FLIGHT for each in found)

    def complete_below(self, offset: int) -> None:
        """Complete all records before this offset, whatever their verdicts."""
        for at, each in self._delivered.items():
            if at < offset:
                self._awaiting_retry -= each.state is RecordState.AWAITING_RETRY
                each.state = RecordState.DONE
        self.next_offset = max(self.next_offset, min(offset, len(self.log)))
        self._advance()

    def complete(self, first: int, last: int) -> None:
        """Complete records that have their verdict."""
        for offset in range(first, last + 1):
            self._delivered[offset].state = RecordState.DONE
        self._advance()

    def _advance(self) -> None:
        while self.position < self.next_offset:
            state = self._delivered.get(self.position, DONE).state
            if state is not RecordState.DONE:
                return
            self._delivered.pop(self.position, None)
            self.position += 1

    def retry(self, offset: int, due_ms: int) -> None:
        """Schedule a redelivery."""
        delivered = self._delivered[offset]
        delivered.state, delivered.due_ms = RecordState.AWAITING_RETRY, due_ms
        self._awaiting_retry += 1

    def requeue_behind(self, offset: int, ordering: pb.Ordering.ValueType) -> None:
        """Requeue what follows a record judged RETRY, in partition order."""
        self.turn += 1
        if ordering == pb.ORDERING_PARTITION:
            self._requeue(offset + 1)

    def requeue_all(self) -> None:
        """Requeue all records in flight, which the application has not begun."""
        self._requeue(0)

    def _requeue(self, first: int) -> None:
        for offset, each in self._delivered.items():
            if offset >= first and each.state is RecordState.IN_FLIGHT:
                each.state, each.due_ms = RecordState.AWAITING_RETRY, 0
                each.deliveries -= 1
                self._awaiting_retry += 1

    def deliveries(self, offset: int) -> int:
        """Return how often a record was dispatched."""
        return self._delivered[offset].deliveries

    def dead_letter(self, offset: int, reason: str) -> None:
        """Record a dead letter."""
        dead_letter = DeadLetter(self._record(offset), reason, self.deliveries(offset))
        self.dead_letters.append(dead_letter)
        self.complete(offset, offset)

    def records(self) -> Iterator[Record]:
        """Return the records that were not deleted."""
        return map(self._record, range(self.start, len(self.log)))

    def _record(self, offset: int) -> Record:
        key, value, timestamp_ms, headers = self.log[offset]
        return Record(
            self.topic_partition.topic,
            self.topic_partition.partition,
            offset,
            timestamp_ms,
            key,
            value,
            headers,
        )


def batch_of(offset: int, records: Sequence[StoredRecord]) -> log_pb2.RecordBatch:
    """Build the wire batch of consecutive records."""
    columns = Columns(
        [each.value for each in records],
        [each.key for each in records],
        [each.timestamp_ms for each in records],
        [each.headers for each in records],
    )
    base_ms = records[0].timestamp_ms
    return log_pb2.RecordBatch(
        base_offset=offset,
        base_timestamp_ms=base_ms,
        max_timestamp_ms=max(each.timestamp_ms for each in records),
        count=len(records),
        codec=CODEC,
        payload=pack(columns, len(records), base_ms),
    )
