"""Offsets of a group's partitions, as its engine reports them, and the lag derived from them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from rota_operator.overview.assignment import Partition

# Offsets are polled about once a second; older ones are unknown.
OFFSETS_VALID_MS = 5_000
# Sidecars are asked less often, see `offset_lookups`.
QUERIED_VALID_MS = 60_000


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
        lag_records = self.lag_records
        if lag_records == 0 or self.markers_only:
            return 0.0
        if lag_records is None or self.first_uncommitted_ms is None:
            return None
        return max(0.0, (now_ms - self.first_uncommitted_ms) / 1000)


UNKNOWN_OFFSETS = PartitionOffsets()


class OffsetChange(Enum):
    """Extent of the change that an update of a group's offsets makes."""

    NOTHING = "nothing"
    # Offsets alone.
    NUMBERS = "numbers"
    # Partitions are listed for the first time or no more, or offsets were unknown before.
    PARTITIONS = "partitions"


class KnownOffsets:
    """The last reported offsets; they expire after OFFSETS_VALID_MS."""

    def __init__(self) -> None:
        self._found: Mapping[Partition, PartitionOffsets] = {}
        self._at_ms = 0
        # The partitions of the last update, however old it is; None before the first one.
        self.listed: frozenset[Partition] | None = None
        # Offsets that sidecars looked up, and when.
        self._queried: dict[Partition, tuple[PartitionOffsets, int]] = {}

    def update(self, found: Mapping[Partition, PartitionOffsets], now_ms: int) -> OffsetChange:
        """Replace all offsets; returns what has changed."""
        was = self.known(now_ms)
        self._found, self._at_ms = found, now_ms
        if self.listed is not None and was == found:
            return OffsetChange.NOTHING
        is_listed = self.listed is not None and was.keys() == found.keys()
        self.listed = frozenset(found)
        return OffsetChange.NUMBERS if is_listed else OffsetChange.PARTITIONS

    def update_queried(self, found: Mapping[Partition, PartitionOffsets], now_ms: int) -> None:
        """Add offsets that a sidecar looked up; each expires after QUERIED_VALID_MS."""
        self._queried = {
            each: (offsets, at_ms)
            for each, (offsets, at_ms) in self._queried.items()
            if now_ms - at_ms <= QUERIED_VALID_MS
        }
        self._queried |= {each: (offsets, now_ms) for each, offsets in found.items()}

    def drop_queried(self, partitions: Iterable[Partition]) -> None:
        """Drop what sidecars looked up about partitions whose owner reports them: it is outdated once they are revoked."""
        for each in partitions:
            self._queried.pop(each, None)

    def queried(self, partition: Partition, now_ms: int) -> PartitionOffsets:
        """Offsets of a partition that a sidecar looked up; unknown once expired."""
        offsets, at_ms = self._queried.get(partition, (UNKNOWN_OFFSETS, now_ms))
        return offsets if now_ms - at_ms <= QUERIED_VALID_MS else UNKNOWN_OFFSETS

    def known(self, now_ms: int) -> Mapping[Partition, PartitionOffsets]:
        """Offsets by partition; empty once expired."""
        return self._found if now_ms - self._at_ms <= OFFSETS_VALID_MS else {}
