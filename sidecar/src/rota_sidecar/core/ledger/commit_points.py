"""
Metadata of a commit: failures of the record at the offset, records that may be in flight, offsets completed ahead.

A sidecar that is killed together with its application leaves nothing but its last commit. From its metadata the next owner
learns whether records were in flight, and which ones may have crashed the application.
"""

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from rota_sidecar.core.ledger import completed_ahead


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
    # As `completed_ahead.py` writes it.
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


class CommitPoint(NamedTuple):
    """An offset to commit, with its metadata."""

    offset: int
    metadata: str


_METADATA = re.compile(
    rf"rota:1:([0-9]{{1,9}}):([0-9]{{1,9}}):(clean|open|one|alone)(?::({completed_ahead.PATTERN}))?"
)


def parse_commit_metadata(metadata: str) -> CommitMetadata:
    """Parse a commit's metadata; text that Rota did not write gives the default, which is clean."""
    found = _METADATA.fullmatch(metadata)
    if found is None:
        return CommitMetadata()
    return CommitMetadata(State(found[3]), int(found[1]), int(found[2]), found[4] or "")
