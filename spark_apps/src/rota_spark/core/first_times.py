"""
Timestamps of the first uncommitted records, as far as they have been looked up.

`lag_reports` asks for offsets whose timestamp is not known, looks them up in the log, and reports those of the present positions.
Beside a position it keeps the offset at which the batch in flight ends, so that its timestamp is known as soon as the batch is
committed.
"""

from collections.abc import Mapping
from typing import NamedTuple

from rota_spark.core.plan import Partition


class FirstTime(NamedTuple):
    """Timestamp in ms of the first record at or behind an offset."""

    offset: int
    timestamp_ms: int


class FirstTimes:
    """Invariant: has timestamps of positions, and of ends of the batch in flight, of the last `keep` only."""

    def __init__(self) -> None:
        self._times_ms: dict[tuple[Partition, int], int] = {}

    def keep(self, *offsets: Mapping[Partition, int]) -> None:
        """Forget the timestamps of all other offsets."""
        kept = {each for some in offsets for each in some.items()}
        self._times_ms = {each: at_ms for each, at_ms in self._times_ms.items() if each in kept}

    def unknown(
        self, offsets: Mapping[Partition, int], ends: Mapping[Partition, int]
    ) -> dict[Partition, int]:
        """Return the offsets that have a record, before the end of the log, whose timestamp is not known."""
        return {
            partition: offset
            for partition, offset in offsets.items()
            if offset < ends.get(partition, offset) and (partition, offset) not in self._times_ms
        }

    def add(self, offsets: Mapping[Partition, int], times_ms: Mapping[Partition, int]) -> None:
        """Note timestamps that were looked up at these offsets."""
        self._times_ms |= {(each, offsets[each]): at_ms for each, at_ms in times_ms.items()}

    def at(self, positions: Mapping[Partition, int]) -> dict[Partition, FirstTime]:
        """Return the known timestamps of these positions."""
        return {
            partition: FirstTime(offset, self._times_ms[partition, offset])
            for partition, offset in positions.items()
            if (partition, offset) in self._times_ms
        }
