"""
What a commit says beside its offset: how often the record there has failed, and what may be in an application's hands.

A sidecar that is killed together with its application leaves nothing behind but its last commit. Whoever takes the
partition over learns from it whether it was cut off, and whom to suspect.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


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
class Mark:
    """What is known of the record at the committed offset, and around it."""

    state: State = State.CLEAN
    # Verdicts that asked for another delivery.
    retries: int = 0
    # Deliveries during which the application died.
    charges: int = 0

    @property
    def metadata(self) -> str:
        """As it stands in a commit."""
        return f"rota:1:{self.retries}:{self.charges}:{self.state.value}"


class Point(NamedTuple):
    """What to commit."""

    offset: int
    metadata: str


_METADATA = re.compile(r"rota:1:([0-9]{1,9}):([0-9]{1,9}):(clean|open|one|alone)")


def read_mark(metadata: str) -> Mark:
    """What a commit said; one that Rota did not write says nothing."""
    found = _METADATA.fullmatch(metadata)
    if found is None:
        return Mark()
    return Mark(State(found[3]), int(found[1]), int(found[2]))
