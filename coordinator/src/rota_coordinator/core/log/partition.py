"""
Partition of a topic: its offsets, and the transactions of its records.

`state` changes it with every batch that is decided, and again when the shell reports the batch as stored. Consumers see
stored batches only, because a crash may undo a decision that is not stored yet.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from rota_coordinator.core.log.batch import NO_PRODUCER, Control, Header
from rota_coordinator.core.log.config import DELETE_RETENTION_MS
from rota_coordinator.core.log.sequences import Sequences
from rota_proto.log.v1 import log_pb2

FIRST_OFFSET = attrgetter("first_offset")
COMPACTING = (log_pb2.CLEANUP_POLICY_COMPACT, log_pb2.CLEANUP_POLICY_COMPACT_DELETE)
DELETING = (log_pb2.CLEANUP_POLICY_DELETE, log_pb2.CLEANUP_POLICY_COMPACT_DELETE)


class Retention(NamedTuple):
    """
    The retention of records by age and by size, of which FOR_EVER means unlimited, and the cleanup policy.

    Invariant: without the cleanup policy `delete`, age and size are unlimited.
    """

    ms: int
    bytes: int
    policy: log_pb2.CleanupPolicy.ValueType = log_pb2.CLEANUP_POLICY_DELETE
    # Tombstones stay this long after the records that they delete.
    delete_retention_ms: int = DELETE_RETENTION_MS

    @property
    def compacts(self) -> bool:
        """Compaction keeps the last record of each key only."""
        return self.policy in COMPACTING


class Cleaned(NamedTuple):
    """The progress of log compaction in a partition; offsets."""

    # Before it each key has at most one record.
    until: int = 0
    # End of the last pass; what was appended since decides when the next one is due.
    indexed_until: int = 0
    # Tombstones before this offset may be removed from `tombstones_ms` on, a wall-clock time.
    tombstones_until: int = 0
    tombstones_ms: int = 0


class Aborted(NamedTuple):
    """A producer's aborted transaction in this partition: the offsets of its first record and of its abort marker."""

    first_offset: int
    marker_offset: int


@dataclass(slots=True)
class Partition:
    """The state of one partition. Invariant: start <= last stable offset <= high_watermark <= end."""

    log_id: int
    topic: str
    index: int
    topic_id: bytes
    retention: Retention
    sequences: Sequences
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    cleaned: Cleaned = field(default_factory=Cleaned)
    # Steps of compaction since the partition was loaded. A read of stored batches that spans one is repeated, because what is
    # known of aborted transactions may not fit the batches.
    rewrites: int = 0
    # Producer id -> first offset of its open transaction, as decided and as stored; both in offset order.
    open: dict[int, int] = field(default_factory=dict)
    _open_in_file: dict[int, int] = field(default_factory=dict)
    # Producer id -> its aborted transactions, in offset order.
    _aborted: dict[int, list[Aborted]] = field(default_factory=dict)

    @property
    def retention_ms(self) -> int:
        """The age, in ms, beyond which a record may be deleted."""
        return self.retention.ms

    @property
    def retention_bytes(self) -> int:
        """The size, in bytes, beyond which the oldest records may be deleted."""
        return self.retention.bytes

    @property
    def last_stable_offset(self) -> int:
        """Kafka's last stable offset: every record before it is committed, aborted, or not transactional."""
        return next(iter(self._open_in_file.values()), self.high_watermark)

    def visible_end(self, isolation: log_pb2.IsolationLevel.ValueType) -> int:
        """Return the offset after the last record that a consumer of this isolation level receives."""
        if isolation == log_pb2.ISOLATION_LEVEL_READ_COMMITTED:
            return self.last_stable_offset
        return self.high_watermark

    def is_aborted(self, header: Header) -> bool:
        """Return whether a batch below the last stable offset belongs to an aborted transaction."""
        if not header.transactional:
            return False
        ranges = self._aborted.get(header.producer_id, [])
        index = bisect_right(ranges, header.base_offset, key=FIRST_OFFSET)
        return index > 0 and header.base_offset < ranges[index - 1].marker_offset

    def add(self, header: Header) -> None:
        """Apply the header of a batch that was decided or loaded."""
        self.end = header.next_offset
        if header.control is not Control.RECORDS:
            self._close(header)
        elif header.producer_id != NO_PRODUCER:
            self.sequences.add_batch(header)
            if header.transactional:
                self.open.setdefault(header.producer_id, header.base_offset)

    def _close(self, marker: Header) -> None:
        first_offset = self.open.pop(marker.producer_id, None)
        if first_offset is not None and marker.control is Control.ABORT:
            ranges = self._aborted.setdefault(marker.producer_id, [])
            ranges.append(Aborted(first_offset, marker.base_offset))

    def written(self, header: Header) -> None:
        """Advance the high watermark past a stored batch."""
        self.high_watermark = header.next_offset
        if header.control is not Control.RECORDS:
            self._open_in_file.pop(header.producer_id, None)
        elif header.transactional:
            self._open_in_file.setdefault(header.producer_id, header.base_offset)

    def loaded(self) -> None:
        """Set the high watermark to the end, after loading."""
        self.high_watermark = self.end
        self._open_in_file = dict(self.open)

    def move_start(self, offset: int) -> None:
        """Set the start offset; state of earlier batches is dropped, except that of open transactions."""
        self.start = offset
        self.end = max(self.end, offset)
        self.sequences.forget_before(offset)
        for producer_id, ranges in list(self._aborted.items()):
            left = [each for each in ranges if each.marker_offset >= offset]
            if left:
                self._aborted[producer_id] = left
            else:
                del self._aborted[producer_id]

    def rewritten(self, headers: Iterable[Header]) -> None:
        """Forget batches that compaction has removed, or stored without their producer; called once that is in the file."""
        self.rewrites += 1
        forgotten: set[int] = set()
        for header in headers:
            forgotten.add(header.base_offset)
            if header.control is Control.ABORT:
                ranges = self._aborted.pop(header.producer_id, [])
                left = [each for each in ranges if each.marker_offset != header.base_offset]
                if left:
                    self._aborted[header.producer_id] = left
        self.sequences.forget(lambda batch: batch.base_offset in forgotten)
