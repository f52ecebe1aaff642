"""
Fetched records that are not done, by index: 0, 1, 2 … in the order of their offsets.

Offsets have gaps (control markers, compacted records), and indexes have none, so that the rest of the ledger works with
consecutive numbers.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from rota_sidecar.core.ledger.batches import Batch, BatchSlice
from rota_sidecar.core.ledger.runs import Run, Runs

# Done entries are removed together, when there are at least this many and they are the majority.
_DONE_KEPT = 64


class _Entry:
    """The records of one batch. Invariant: `batch` is None when all are done: one slow record keeps no later batch in memory."""

    __slots__ = ("_batch", "_count", "_fresh", "_size", "_undone", "end", "index", "offset")

    def __init__(self, index: int, offset: int, count: int, size: int, batch: Batch) -> None:
        self.index: Final = index
        self.end: Final = index + count
        # Offset of the entry's first record, which is not the batch's first one if that lies before the position.
        self.offset: Final = offset
        self._count = count
        self._size = size
        self._batch: Batch | None = batch
        # Number of records that are not done.
        self._undone = count
        # Number of records that were never dispatched.
        self._fresh = count

    @property
    def batch(self) -> Batch | None:
        """Return the batch; None when all records are done."""
        return self._batch

    def overlap(self, first: int, end: int) -> int:
        """Return how many of these indexes belong to this entry."""
        return min(end, self.end) - max(first, self.index)

    def slice_of(self, first: int, end: int) -> BatchSlice:
        """Return the part of the batch at these indexes, none of which is done."""
        assert self._batch is not None
        ahead = self.offset - self.index
        return BatchSlice(self._batch, max(first, self.index) + ahead, min(end, self.end) + ahead)

    def mark_dispatched(self, first: int, end: int) -> int:
        """Mark these records as dispatched; return their size in bytes."""
        before = self._size * self._fresh // self._count
        self._fresh -= self.overlap(first, end)
        return before - self._size * self._fresh // self._count

    def finish(self, first: int, end: int) -> None:
        """Mark these records as done."""
        self._undone -= self.overlap(first, end)
        if not self._undone:
            self._batch = None


class RecordBuffer:
    """Invariant: entries are in the order of offsets, and the record at `low` is not done."""

    def __init__(self, start: int, done_before: Runs) -> None:
        """Start empty at offset `start`; the offsets in `done_before` are done already, and get no index."""
        self._done_before = done_before
        self._position = start
        self._buffered_bytes = 0
        self._low = 0
        self._end = 0
        self._floor = start
        self._done = Runs()
        self._entries: list[_Entry] = []
        # First index and first offset of each entry, for binary search. Entries before `_head` are done.
        self._first_indexes: list[int] = []
        self._offsets: list[int] = []
        self._head = 0

    @property
    def position(self) -> int:
        """Return the offset of the next fetch."""
        return self._position

    @property
    def buffered_bytes(self) -> int:
        """Return the size in bytes of the records that were never dispatched."""
        return self._buffered_bytes

    @property
    def low(self) -> int:
        """Return the index of the first record that is not done; equal to `end` if there is none."""
        return self._low

    @property
    def end(self) -> int:
        """Return the index of the next record that is fetched."""
        return self._end

    @property
    def floor(self) -> int:
        """Return the offset before which all records are done and removed from the buffer."""
        return self._floor

    @property
    def undone(self) -> int:
        """Return the number of records that are not done."""
        return self._end - self._low - self._done.count

    def add(self, batches: Sequence[Batch], next_offset: int) -> None:
        """Append the records of batches that are not before the position and not done."""
        for batch in batches:
            first, end = max(batch.first, self._position), batch.end
            for run in self._done_before.gaps(first, end) if self._done_before else (Run(first, end),):
                if run.first < run.end:
                    self._add(batch, run)
            self._position = max(self._position, end)
        self._position = max(self._position, next_offset)

    def _add(self, batch: Batch, run: Run) -> None:
        count = run.end - run.first
        size = batch.size * count // batch.count
        self._entries.append(_Entry(self._end, run.first, count, size, batch))
        self._first_indexes.append(self._end)
        self._offsets.append(run.first)
        self._end += count
        self._buffered_bytes += size

    def not_done_before(self, first: int, end: int) -> int:
        """Return the lowest of these offsets that no earlier owner completed, or `end`."""
        gaps = self._done_before.gaps(max(first, self._position), end)
        return gaps[0].first if gaps else end

    def offset(self, index: int) -> int:
        """Return the offset of this index; for `end`, the position."""
        if index >= self._end:
            return self._position
        entry = self._entries[self._entry_at(index)]
        return entry.offset + index - entry.index

    def index(self, offset: int) -> int:
        """Return the index of this offset, or of the next record if there is none at the offset."""
        at = bisect_right(self._offsets, offset, lo=self._head) - 1
        if at < self._head:
            return self._first_indexes[self._head] if self._head < len(self._first_indexes) else self._end
        entry = self._entries[at]
        return min(entry.index + offset - entry.offset, entry.end)

    def slices(self, first: int, end: int) -> list[BatchSlice]:
        """Return the batch slices at these indexes, none of which is done."""
        return [entry.slice_of(first, end) for entry in self._between(first, end)]

    def batch(self, index: int) -> Batch:
        """Return the batch of this record, which is not done."""
        found = self._entries[self._entry_at(index)].batch
        assert found is not None
        return found

    def keys(self, first: int, end: int) -> Iterator[tuple[int, bytes | None]]:
        """Yield (index, key) of these indexes, none of which is done; keys that are not consumed cost nothing."""
        at = self._entry_at(first)
        while first < end:
            entry = self._entries[at]
            assert entry.batch is not None
            assert entry.batch.keys is not None
            ahead = entry.offset - entry.batch.first - entry.index
            for index in range(first, min(end, entry.end)):
                yield index, entry.batch.keys[index + ahead]
            first = entry.end
            at += 1

    def is_done(self, index: int) -> bool:
        """Return True if this record is done."""
        return index < self._low or self._done.covers(index, index + 1)

    def completed_ahead(self) -> list[Run]:
        """Return the done offsets after the first record that is not done, of this owner and of earlier ones."""
        found = Runs()
        for before in self._done_before:
            found.add(*before)
        found.remove(0, self.offset(self._low))
        for run in self._done:
            for entry in self._between(run.first, run.end):
                ahead = entry.offset - entry.index
                found.add(max(run.first, entry.index) + ahead, min(run.end, entry.end) + ahead)
        return list(found)

    def mark_dispatched(self, first: int, end: int) -> None:
        """Subtract these records from `buffered_bytes`."""
        for entry in self._between(first, end):
            self._buffered_bytes -= entry.mark_dispatched(first, end)

    def undone_before(self, index: int) -> list[Run]:
        """Return the records before this index that are not done."""
        return self._done.gaps(self._low, index)

    def finish(self, first: int, end: int) -> None:
        """Mark records as done; none of them may be done already."""
        for entry in self._between(first, end):
            entry.finish(first, end)
        if first > self._low:
            self._done.add(first, end)
            return
        self._low = end
        if self._done and self._done.first == end:
            self._low = self._done.missing(end, self._end)
            self._done.remove(end, self._low)
        self._cut()

    def skip_to(self, offset: int) -> None:
        """Move the position forward to this offset; never backward."""
        self._position = max(self._position, offset)

    def _cut(self) -> None:
        while self._head < len(self._entries) and self._entries[self._head].end <= self._low:
            done = self._entries[self._head]
            self._floor = done.offset + done.end - done.index
            self._head += 1
        if self._head >= _DONE_KEPT and 2 * self._head > len(self._entries):
            for each in (self._entries, self._first_indexes, self._offsets):
                del each[: self._head]
            self._head = 0

    def _between(self, first: int, end: int) -> Sequence[_Entry]:
        """Return the entries that overlap the range."""
        if first >= end:
            return ()
        at = self._entry_at(first)
        if end <= self._entries[at].end:
            return (self._entries[at],)
        return self._entries[at : self._entry_at(end - 1) + 1]

    def _entry_at(self, index: int) -> int:
        return bisect_right(self._first_indexes, index, lo=self._head) - 1
