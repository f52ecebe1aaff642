"""Offsets of a group's partitions, as its engine reports them, and the lag derived from them."""

from collections.abc import Mapping
from dataclasses import dataclass

from rota_operator.overview.assignment import Partition

# Offsets are polled about once a second; older ones are unknown.
OFFSETS_VALID_MS = 5_000


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """
    Offsets of one partition; None is unknown. Lag is the number of uncommitted records: end - max(committed, start), at least
    0.

    With read_committed, `end` is the last stable offset.
    """

    committed: int | None = None
    start: int | None = None
    end: int | None = None
    # Timestamp in ms of the first uncommitted record; None: unknown, or there is no such record.
    first_uncommitted_ms: int | None = None
    # After the committed offset the log has control markers only.
    markers_only: bool = False

    @property
    def lag_records(self) -> int | None:
        """Number of uncommitted records."""
        if self.committed is None or self.start is None or self.end is None:
            return None
        return max(0, self.end - max(self.committed, self.start))

    def lag_seconds(self, now_ms: int) -> float | None:
        """Age of the first uncommitted record; 0 when there is none."""
        if self.lag_records == 0 or self.markers_only:
            return 0.0
        if self.lag_records is None or self.first_uncommitted_ms is None:
            return None
        return max(0.0, (now_ms - self.first_uncommitted_ms) / 1000)


UNKNOWN_OFFSETS = PartitionOffsets()


class KnownOffsets:
    """The last reported offsets; they expire after OFFSETS_VALID_MS."""

    def __init__(self) -> None:
        self._found: Mapping[Partition, PartitionOffsets] = {}
        self._at_ms = 0

    def update(self, found: Mapping[Partition, PartitionOffsets], now_ms: int) -> None:
        """Replace all offsets."""
        self._found, self._at_ms = found, now_ms

    def known(self, now_ms: int) -> Mapping[Partition, PartitionOffsets]:
        """Offsets by partition; empty once expired."""
        return self._found if now_ms - self._at_ms <= OFFSETS_VALID_MS else {}
