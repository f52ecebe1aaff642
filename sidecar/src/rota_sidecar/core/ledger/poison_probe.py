"""
Search for a poison record after the application was cut off: few records are dispatched at first.

Records before the dispatch limit go out. When all of them are done, and that is committed, the limit moves on: by one
record for a while, then by more and more, until there is no limit.
"""

# Records that go out one by one.
SINGLES = 100
# The first fence with room for several has room for this many, each later one for twice as many,
GROUP = 100
# and this many need no fence.
GROUP_MAX = 10_000


class PoisonRecordProbe:
    """The dispatch limit of one partition. Off until `begin`; `_size` 0 means no limit."""

    def __init__(self) -> None:
        # Records between the last fence and this one; 0 = there is no fence.
        self._size = 0
        self._dispatch_limit = 0
        self._singles_left = 0
        # Whether what lies before the fence may go: what lay before the last one is committed.
        self.is_cleared = True

    @property
    def is_on(self) -> bool:
        """Return true if there is a dispatch limit."""
        return self._size > 0

    @property
    def is_single(self) -> bool:
        """Return true if records go out one at a time."""
        return self._size == 1

    def begin(self, low: int) -> None:
        """Set the first limit; `low` is the first index that is not done."""
        self._size, self._dispatch_limit, self._singles_left = 1, low, SINGLES
        self.is_cleared = False

    def dispatch_limit(self, low: int) -> int | None:
        """Return the index before which records may go out, when all before `low` are done; None: no limit."""
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
