"""Who the member is to its coordinator."""

from collections.abc import Mapping
from dataclasses import dataclass, field

NO_GENERATION = -1
UNKNOWN_INCARNATION = -1


@dataclass(frozen=True, slots=True)
class Identity:
    """The member as its coordinator knows it; as it is made, it is nobody."""

    member_id: str = ""
    generation: int = NO_GENERATION
    strategy: str = ""
    incarnation: int = UNKNOWN_INCARNATION
    leads: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a member tells its group when it joins: the topics, and the names of the strategies that it offers."""

    topics: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Remembered:
    """What is kept outside of the process, so that a crash of the sidecar alone loses no membership."""

    member_id: str
    # NO_GENERATION until it has an assignment.
    generation: int = NO_GENERATION
    strategy: str = ""
    leads: bool = False
    wanted: Wanted = Wanted()
    # What the leader made its plan for: it has to notice what changed while it was away.
    planned: Mapping[str, int] = field(default_factory=dict)
