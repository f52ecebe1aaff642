"""
Cache of the newest rows of the log, so that fetches at the end of a partition do not read the store.

`topic_log` adds rows once they are stored, and clears the cache when it reloads the log; `fetches` reads the cache
before the store.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from rota_coordinator.core.log.batch import Row

BYTES_MAX = 4 << 20


class RecentRows:
    """
    Rows of all logs, in the order of their writes.

    Invariant: the payloads total at most BYTES_MAX; the rows of each log are its last ones, without those that were forgotten.
    """

    def __init__(self) -> None:
        self._rows: deque[Row] = deque()
        # Base offset -> row, for each log id.
        self._by_offset: dict[tuple[int, int], Row] = {}
        self._bytes = 0

    def remember(self, rows: Sequence[Row]) -> None:
        """Add rows that are stored, and drop the oldest ones beyond the limit."""
        for row in rows:
            self._rows.append(row)
            self._by_offset[row.log_id, row.header.base_offset] = row
            self._bytes += len(row.payload)
        while self._bytes > BYTES_MAX:
            row = self._rows.popleft()
            self._bytes -= len(row.payload)
            self._by_offset.pop((row.log_id, row.header.base_offset), None)

    def forget(self, log_id: int, base_offsets: Iterable[int]) -> None:
        """Stop returning rows that compaction has changed in the store; they count until they would be dropped."""
        for base_offset in base_offsets:
            self._by_offset.pop((log_id, base_offset), None)

    def clear(self) -> None:
        """Remove all rows."""
        self._rows.clear()
        self._by_offset.clear()
        self._bytes = 0

    def read(self, log_id: int, offset: int, until: int, max_bytes: int) -> list[Row]:
        """
        Return rows from the one at this base offset up to `until`: at least one, further ones within `max_bytes`.

        Empty when no cached row starts at the offset; the caller then reads the store.
        """
        found: list[Row] = []
        row = self._by_offset.get((log_id, offset))
        while row is not None and row.header.base_offset < until:
            max_bytes -= len(row.payload)
            if found and max_bytes < 0:
                break
            found.append(row)
            row = self._by_offset.get((log_id, row.header.next_offset))
        return found
