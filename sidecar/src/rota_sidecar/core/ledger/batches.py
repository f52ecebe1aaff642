"""Batches and dispatches as the ledger knows them: offsets and sizes, never the records' content."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Ordering(Enum):
    """Records that are processed one after the other: of a partition, of a key, or none."""

    PARTITION = "partition"
    KEY = "key"
    UNORDERED = "unordered"


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """
    Consecutive records of a partition.

    Invariant: there is one record for each offset from `first` on, before `end`. A gap in the log (a control marker, a compacted
    record) begins another batch. `payload` belongs to the asyncio driver; the core never reads it.
    """

    first: int
    count: int
    size: int
    payload: object
    # Key of each record; set only with Ordering.KEY.
    keys: Sequence[bytes | None] | None = None

    @property
    def end(self) -> int:
        """Return the offset after the last record."""
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
    """Records that go to the application together. Invariant: all have the same delivery count."""

    # Delivery count, including this delivery.
    deliveries: int
    slices: Sequence[BatchSlice]
    # Number of RETRY verdicts before this dispatch. The application tells by it which records a RETRY took back.
    turn: int = 0

    @property
    def count(self) -> int:
        """Return the number of records."""
        return sum(batch_slice.count for batch_slice in self.slices)
