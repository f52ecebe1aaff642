"""Batches, dispatches and outcomes as the ledger knows them: offsets and sizes, never the records' content."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


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
        slices = self.slices
        return slices[0].count if len(slices) == 1 else sum(batch_slice.count for batch_slice in slices)


class Judged(NamedTuple):
    """The result of a verdict: the number of records settled, or one message why the verdict is refused."""

    settled: int
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class DueDeadLetter:
    """A record to write as a dead letter; nothing is committed past it before that is durable."""

    offset: int
    # Slice with this record only.
    batch_slice: BatchSlice
    reason: str
    # Number of deliveries.
    deliveries: int
