"""Batches and dispatches as the ledger knows them: offsets and sizes, never the records' content."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Ordering(Enum):
    """The records that have to wait for each other."""

    PARTITION = "partition"
    KEY = "key"
    UNORDERED = "unordered"


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """
    Consecutive records, one for each offset; a gap in the log (a marker, a compacted record) begins another batch.

    `payload` belongs to the asyncio driver; the core never reads it.
    """

    first: int
    count: int
    size: int
    payload: object
    # Only where records of a key must wait for each other.
    keys: Sequence[bytes | None] | None = None

    @property
    def end(self) -> int:
        """The offset after the last one."""
        return self.first + self.count


@dataclass(frozen=True, slots=True)
class BatchSlice:
    """Records of a batch: offsets from `first` on, before `end`."""

    batch: Batch
    first: int
    end: int

    @property
    def count(self) -> int:
        """Return the number of records."""
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Records that go to the application together, all with the same delivery count."""

    # This time included.
    deliveries: int
    slices: Sequence[BatchSlice]
    # Rises with each RETRY: what was handed out before one, and lies behind its record, is told from what comes again.
    turn: int = 0

    @property
    def count(self) -> int:
        """Return the number of records."""
        return sum(batch_slice.count for batch_slice in self.slices)
