"""
Metadata of a commit: failures of the record at the offset, records that may be in flight, offsets completed ahead.

A sidecar that is killed together with its application leaves nothing but its last commit. From its metadata the next owner
learns whether records were in flight, and which ones may have crashed the application. So records are dispatched only after a
commit has announced them: the ledger asks the gate before each dispatch (`request`, `is_granted_at`), and tells it each commit.

After a crash few records are dispatched at first, to find a poison record: those before the dispatch limit. When all of them are done and
committed, the limit moves on, by one record for a while, then by more and more, until there is no limit.
"""

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from rota_sidecar.core.ledger.runs import PATTERN

# Number of records that are dispatched one by one.
SINGLES = 100
# After them the limit moves on by GROUP records, then by twice as many each time,
GROUP = 100
# until it would move on by more than GROUP_MAX, and is removed.
GROUP_MAX = 10_000


class State(Enum):
    """Records that may be in flight until a later commit."""

    # None: the tenure has ended cleanly, or dispatch has not begun.
    CLEAN = "clean"
    # Any number of records from the offset on.
    OPEN = "open"
    # The record at the offset, and no other one of the partition.
    ONE = "one"
    # The record at the offset, and no other one of any partition.
    ALONE = "alone"


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """Content of a commit's metadata; the default is what a commit without metadata means."""

    state: State = State.CLEAN
    # Verdicts that asked for another delivery.
    retries: int = 0
    # Deliveries during which the application died.
    crashes: int = 0
    # As `runs.py` writes it.
    completed_ahead: str = ""

    @property
    def metadata(self) -> str:
        """Return the text of the commit's metadata field."""
        return _metadata(self.state, self.retries, self.crashes, self.completed_ahead)


@lru_cache(maxsize=256)
def _metadata(state: State, retries: int, crashes: int, completed_ahead: str) -> str:
    # Cached: each verdict makes a new point, and nearly all points have the same metadata.
    text = f"rota:1:{retries}:{crashes}:{state.value}"
    return f"{text}:{completed_ahead}" if completed_ahead else text


# Metadata of nearly every commit: records may be in flight, and none of them has failed.
OPEN_METADATA = CommitMetadata(State.OPEN).metadata


class CommitPoint(NamedTuple):
    """An offset to commit, with its metadata."""

    offset: int
    metadata: str


_METADATA = re.compile(rf"rota:1:([0-9]{{1,9}}):([0-9]{{1,9}}):(clean|open|one|alone)(?::({PATTERN}))?")


def parse_commit_metadata(metadata: str) -> CommitMetadata:
    """Parse a commit's metadata; text that Rota did not write gives the default, which is clean."""
    found = _METADATA.fullmatch(metadata)
    if found is None:
        return CommitMetadata()
    return CommitMetadata(State(found[3]), int(found[1]), int(found[2]), found[4] or "")


class PoisonRecordProbe:
    """Dispatch limit of one partition; off until `begin`. Invariant: there is a limit if and only if `_size` > 0."""

    def __init__(self) -> None:
        # Number of records between the former limit and this one; 0: no limit.
        self._size = 0
        self._dispatch_limit = 0
        self._singles_left = 0
        self._is_cleared = True

    @property
    def is_cleared(self) -> bool:
        """Return True if records before the limit may be dispatched: all records before the former limit are committed."""
        return self._is_cleared

    def set_cleared(self, *, is_cleared: bool) -> None:
        """Allow to dispatch records before the limit, or forbid it."""
        self._is_cleared = is_cleared

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
        self._is_cleared = False

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
        self._is_cleared = not self._size


class DispatchGate:
    """
    Invariant: with metadata, no record is dispatched before a durable commit says that records may be in flight.

    Without metadata the gate is always open: the application commits by itself.
    """

    def __init__(self, *, has_metadata: bool) -> None:
        self._probe = PoisonRecordProbe()
        self._has_metadata = has_metadata
        self._durable: CommitPoint | None = None
        # True if the durable commit says that records may be in flight.
        self._is_open = False
        # Index of the one record that the next commit announces, and the state that it announces.
        self._claim: tuple[int, State] | None = None
        self._is_wanted = True

    @property
    def has_metadata(self) -> bool:
        """Return True if commits carry metadata."""
        return self._has_metadata

    def begin_probe(self, low: int) -> None:
        """Dispatch few records at first, from this index on, because one of them may crash the application."""
        self._probe.begin(low)

    def dispatch_limit(self, low: int) -> int | None:
        """Return the index before which records may be dispatched, when all before `low` are done; None: no limit."""
        return self._probe.dispatch_limit(low)

    def state(self, low: int) -> State:
        """Return the state that a commit at this index announces."""
        return self._claim[1] if self._claim is not None and self._claim[0] == low else State.OPEN

    @property
    def is_granted(self) -> bool:
        """Return True if records may be dispatched."""
        return not self._has_metadata or (self._probe.is_cleared if self._probe.is_on else self._is_open)

    @property
    def is_wanted(self) -> bool:
        """Return True if dispatch waits for a commit that announces records; initially it does."""
        return self._has_metadata and self._is_wanted

    def request(self, low: int, state: State) -> None:
        """Request to dispatch records, the one at `low` first; `state` holds if that record goes out by itself."""
        self._is_wanted = True
        self._claim = (low, state) if self._probe.is_single else None

    def is_granted_at(self, point: CommitPoint) -> bool:
        """Return True if records may be dispatched when `point` is the point to commit."""
        if self._probe.is_on and self._durable == point:
            self._probe.set_cleared(is_cleared=True)
        return self.is_granted

    def withdraw(self) -> None:
        """Withdraw the announcement: the announced record is not in flight, or no longer."""
        if self._probe.is_single:
            self._probe.set_cleared(is_cleared=False)
        if self._claim is not None:
            self._claim = None
            self._is_wanted = True

    def awaits(self, point: CommitPoint) -> bool:
        """Return True if dispatching waits until this point is committed."""
        return self.is_wanted and not self._is_announced(point)

    def committed(self, committed: CommitPoint, point: CommitPoint) -> None:
        """Record that `committed` is durable, while `point` is the point to commit now."""
        self._durable = committed
        self._is_open = parse_commit_metadata(committed.metadata).state is not State.CLEAN
        # A clean commit ends a tenure or a drain; only a new request may replace it.
        if self._is_announced(point) or not self._is_open:
            self._is_wanted = False

    def _is_announced(self, point: CommitPoint) -> bool:
        return self._durable == point if self._probe.is_on else self._is_open
