"""
How much is handed out after the application was cut off: little at first, so that the record that did it is found.

A fence stands in the partition. What lies before it is handed out; when all of it is done, and that is committed, the
fence moves on: by one record for a while, then by more and more, until there is none.
"""

# Records that go out one by one.
SINGLES = 100
# The first fence with room for several has room for this many, each later one for twice as many,
GROUP = 100
# and this many need no fence.
GROUP_MAX = 10_000


class PoisonRecordProbe:
    """Off until it is begun."""

    def __init__(self) -> None:
        # Records between the last fence and this one; 0 = there is no fence.
        self._size = 0
        self._dispatch_limit = 0
        self._singles_left = 0
        # Whether what lies before the fence may go: what lay before the last one is committed.
        self.is_cleared = True

    @property
    def is_on(self) -> bool:
        """Whether there is a fence."""
        return self._size > 0

    @property
    def is_single(self) -> bool:
        """Whether one record goes at a time."""
        return self._size == 1

    def begin(self, low: int) -> None:
        """The application was cut off, and this is the first place that is not done."""
        self._size, self._dispatch_limit, self._singles_left = 1, low, SINGLES
        self.is_cleared = False

    def dispatch_limit(self, low: int) -> int | None:
        """Where the fence stands when all places before `low` are done."""
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
