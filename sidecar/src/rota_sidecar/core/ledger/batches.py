"""Records as the ledger knows them: where they lie, never what they say."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Ordering(Enum):
    """Which records must wait for which."""

    PARTITION = "partition"
    KEY = "key"
    UNORDERED = "unordered"


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """
    Consecutive records, one for each offset; a gap in the log (a marker, a compacted record) begins another batch.

    `payload` is the shell's own; nobody here looks into it.
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
    """Records of a batch from `first` on, before `end`."""

    batch: Batch
    first: int
    end: int

    @property
    def count(self) -> int:
        """How many."""
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Records to be handed to the application together, all for the same time."""

    # This time included.
    deliveries: int
    slices: Sequence[BatchSlice]
    # Rises with each RETRY: what was handed out before one, and lies behind its record, is told from what comes again.
    turn: int = 0

    @property
    def count(self) -> int:
        """How many records."""
        return sum(batch_slice.count for batch_slice in self.slices)
