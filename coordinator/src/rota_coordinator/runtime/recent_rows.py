"""
The newest rows of the log in memory: a reader at the end of a partition needs no read of the file.

`topic_log` remembers rows once they are in the file, and forgets all of them when it reads the log anew; `fetches` asks
here first.
"""

from collections import deque
from collections.abc import Sequence

from rota_coordinator.core.log.batch import Row

BYTES_MAX = 4 << 20


class RecentRows:
    """
    Rows of all logs, in the order of their writes.

    Invariant: the sum of their payloads is at most BYTES_MAX; of each log they are the last ones, without a gap.
    """

    def __init__(self) -> None:
        self._rows: deque[Row] = deque()
        # By log and base offset.
        self._by_offset: dict[tuple[int, int], Row] = {}
        self._bytes = 0

    def remember(self, rows: Sequence[Row]) -> None:
        """Add rows that are in the file, and drop the oldest ones beyond the limit."""
        for row in rows:
            self._rows.append(row)
            self._by_offset[row.log_id, row.header.base_offset] = row
            self._bytes += len(row.payload)
        while self._bytes > BYTES_MAX:
            row = self._rows.popleft()
            self._bytes -= len(row.payload)
            del self._by_offset[row.log_id, row.header.base_offset]

    def clear(self) -> None:
        """Forget all rows."""
        self._rows.clear()
        self._by_offset.clear()
        self._bytes = 0

    def read(self, log_id: int, offset: int, until: int, max_bytes: int) -> list[Row]:
        """
        Return rows from the one that begins at the offset, up to `until`: at least one, the others within max_bytes.

        Empty when no remembered row begins there: then the store has it.
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
