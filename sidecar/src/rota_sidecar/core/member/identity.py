"""Identity of a member in its group, and the membership that is saved across restarts."""

from dataclasses import dataclass

NO_GENERATION = -1
UNKNOWN_INCARNATION = -1


@dataclass(frozen=True, slots=True)
class Identity:
    """Member id and generation as the coordinator knows them; the default is a member that has not joined."""

    member_id: str = ""
    generation: int = NO_GENERATION
    strategy: str = ""
    incarnation: int = UNKNOWN_INCARNATION
    leads: bool = False


@dataclass(frozen=True, slots=True)
class JoinMetadata:
    """Content of a JoinGroup request: subscribed topics, and names of the offered strategies in order of preference."""

    topics: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SavedMembership:
    """Content of the state file, with which a restarted sidecar resumes its membership."""

    member_id: str
    # NO_GENERATION until it has an assignment.
    generation: int = NO_GENERATION
    strategy: str = ""
    leads: bool = False
    join_metadata: JoinMetadata = JoinMetadata()
    # Of a leader: the topics of the whole group, to detect changes that happened during the restart.
    group_topics: frozenset[str] = frozenset()
