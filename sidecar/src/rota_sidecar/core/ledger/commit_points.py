"""
The metadata of a commit: failures of the record at the offset, records that may be in flight, offsets completed
ahead.

A sidecar that is killed together with its application leaves its last commit only. The next owner learns from that
metadata whether the application was cut off, and which records may have killed it.
"""

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from rota_sidecar.core.ledger import completed_ahead


class State(Enum):
    """Records of the partition that may be in flight, as long as nothing later is committed."""

    # Nothing: the tenure is over, or has not begun.
    CLEAN = "clean"
    # Nobody knows how many records from here on.
    OPEN = "open"
    # This record, and no other one of the partition.
    ONE = "one"
    # This record, and no other one of any partition.
    ALONE = "alone"


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The knowledge of the record at the committed offset, and of the offsets behind it."""

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
    # Nearly all points have the same one, and there is a new point with each verdict.
    said = f"rota:1:{retries}:{crashes}:{state.value}"
    return f"{said}:{completed_ahead}" if completed_ahead else said


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
