"""
What a commit says beside its offset: how often the record there has failed, what may be in an application's hands, and
what is done beyond the offset.

A sidecar that is killed together with its application leaves nothing behind but its last commit. Whoever takes the
partition over learns from it whether it was cut off, and whom to suspect.
"""

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from rota_sidecar.core.ledger import completed_ahead


class State(Enum):
    """What an application may have in hand of the partition, as long as nothing later is committed."""

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
    """What is known of the record at the committed offset, and around it."""

    state: State = State.CLEAN
    # Verdicts that asked for another delivery.
    retries: int = 0
    # Deliveries during which the application died.
    crashes: int = 0
    # As `completed_ahead.py` writes it.
    completed_ahead: str = ""

    @property
    def metadata(self) -> str:
        """As it stands in a commit."""
        return _metadata(self.state, self.retries, self.crashes, self.completed_ahead)


@lru_cache(maxsize=256)
def _metadata(state: State, retries: int, crashes: int, completed_ahead: str) -> str:
    # Nearly all points have the same one, and there is a new point with each verdict.
    said = f"rota:1:{retries}:{crashes}:{state.value}"
    return f"{said}:{completed_ahead}" if completed_ahead else said


class CommitPoint(NamedTuple):
    """What to commit."""

    offset: int
    metadata: str


_METADATA = re.compile(
    rf"rota:1:([0-9]{{1,9}}):([0-9]{{1,9}}):(clean|open|one|alone)(?::({completed_ahead.PATTERN}))?"
)


def parse_commit_metadata(metadata: str) -> CommitMetadata:
    """What a commit said; one that Rota did not write says nothing."""
    found = _METADATA.fullmatch(metadata)
    if found is None:
        return CommitMetadata()
    return CommitMetadata(State(found[3]), int(found[1]), int(found[2]), found[4] or "")
