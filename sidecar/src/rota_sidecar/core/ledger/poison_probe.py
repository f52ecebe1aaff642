"""
Search for a poison record after a crash of the application: few records are dispatched at first.

Records before the dispatch limit are dispatched. When all of them are done and committed, the limit moves on: by one record for
a while, then by more and more, until there is no limit.
"""

# Number of records that are dispatched one by one.
SINGLES = 100
# After them the limit moves on by GROUP records, then by twice as many each time,
GROUP = 100
# until it would move on by more than GROUP_MAX, and is removed.
GROUP_MAX = 10_000


class PoisonRecordProbe:
    """Dispatch limit of one partition; off until `begin`. Invariant: there is a limit if and only if `_size` > 0."""

    def __init__(self) -> None:
        # Number of records between the former limit and this one; 0: no limit.
        self._size = 0
        self._dispatch_limit = 0
        self._singles_left = 0
        # True if records before the limit may be dispatched: all records before the former limit are committed.
        self.is_cleared = True

    @property
    def is_on(self) -> bool:
        """Return True if there is a dispatch limit."""
        return self._size > 0

    @property
    def is_single(self) -> bool:
        """Return True if records are dispatched one at a time."""
        return self._size == 1

    def begin(self, low: int) -> None:
        """Set the first limit; `low` is the first index that is not done."""
        self._size, self._dispatch_limit, self._singles_left = 1, low, SINGLES
        self.is_cleared = False

    def dispatch_limit(self, low: int) -> int | None:
        """Return the index before which records may be dispatched, when all before `low` are done; None: no limit."""
        if self._size and low >= self._dispatch_limit:
            self._move(low)
        return self._dispatch_limit if self._size else None

    def _move(self, low: int) -> None:
        if self._singles_left:
            self._singles_left -= 1
        else:
            self._size = GROUP if self._size == 1 else 2 * self._size
        if self._size > GROUP_MAX:
            self._size = 0
        self._dispatch_limit = low + self._size
        self.is_cleared = not self._size
