"""Who the member is to its coordinator."""

from dataclasses import dataclass

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
class JoinMetadata:
    """What a member tells its group when it joins: the topics, and the names of the strategies that it offers."""

    topics: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SavedMembership:
    """What is kept outside of the process, so that a crash of the sidecar alone loses no membership."""

    member_id: str
    # NO_GENERATION until it has an assignment.
    generation: int = NO_GENERATION
    strategy: str = ""
    leads: bool = False
    join_metadata: JoinMetadata = JoinMetadata()
    # Of a leader, the topics of the whole group: it has to notice what changed while it was away.
    group_topics: frozenset[str] = frozenset()
