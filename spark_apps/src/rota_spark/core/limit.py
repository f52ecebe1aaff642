"""
The number of records that a micro-batch may have.

The driver reports the duration of each batch, and each batch that it could not commit. A rebalance waits for the batch in
flight, so that a batch takes at most half of the rebalance timeout; one that was too long for its member must not be planned in
the same size for ever.
"""

RECORDS_MIN = 100
# A batch that takes less than this part of its time may be followed by one of twice the size.
GROW_BELOW = 0.5


class BatchLimit:
    """Invariant: min(RECORDS_MIN, maximum) <= records <= maximum."""

    def __init__(self, maximum: int, seconds_max: float) -> None:
        self._maximum = maximum
        self._minimum = min(RECORDS_MIN, maximum)
        self._seconds_max = seconds_max
        self.records = maximum

    def committed(self, records: int, seconds: float) -> None:
        """Adapt to a batch that was committed: shrink in proportion when it took too long, else grow to the maximum again."""
        if seconds > self._seconds_max:
            self._set(int(records * self._seconds_max / seconds))
        elif seconds < self._seconds_max * GROW_BELOW:
            self._set(self.records * 2)

    def expelled(self, records: int) -> None:
        """Halve: a batch of so many records was not committed before its partitions went to others."""
        self._set(records // 2)

    def _set(self, records: int) -> None:
        self.records = max(self._minimum, min(records, self._maximum))
