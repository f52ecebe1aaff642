"""
One partition of a topic: its offsets, and which of its records belong to transactions.

Changed by `state` with every batch that is decided, and by the shell's word that batches are in the file. What readers
see depends on the latter alone: a transaction that is decided and not written could still be taken back by a crash.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from rota_coordinator.core.log.batch import NO_PRODUCER, Control, Header
from rota_coordinator.core.log.sequences import Sequences
from rota_proto.log.v1 import log_pb2

FIRST_OFFSET = attrgetter("first_offset")


class Retention(NamedTuple):
    """The retention of records by age and by size; FOR_EVER means unlimited."""

    ms: int
    bytes: int


class Aborted(NamedTuple):
    """The offset range of a producer's aborted transaction."""

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
    # Where the open transaction of a producer begins: as decided, and as it is in the file. In the order of offsets.
    open: dict[int, int] = field(default_factory=dict)
    _open_in_file: dict[int, int] = field(default_factory=dict)
    # By producer, in the order of offsets.
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
        """Every record before it is decided: committed, aborted, or of no transaction."""
        return next(iter(self._open_in_file.values()), self.high_watermark)

    def visible_end(self, isolation: log_pb2.IsolationLevel.ValueType) -> int:
        """Behind the last record that a reader gets."""
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
        """Apply a batch that was decided, or read from the file."""
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
        """Advance the high watermark past a batch that is in the file."""
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
        """Set the start offset; state about earlier batches is dropped, except of open transactions."""
        self.start = offset
        self.end = max(self.end, offset)
        self.sequences.forget_before(offset)
        for producer_id, ranges in list(self._aborted.items()):
            left = [each for each in ranges if each.marker_offset >= offset]
            if left:
                self._aborted[producer_id] = left
            else:
                del self._aborted[producer_id]
