"""The states of a member, each with what exists in it only."""

import enum
from dataclasses import dataclass

from rota_sidecar.core.member.partitions import Partition


class AfterRevocation(enum.Enum):
    """What follows when the application has let go."""

    REJOIN = enum.auto()
    DEPART = enum.auto()


@dataclass(frozen=True, slots=True)
class Search:
    """A search for the coordinator: under way, or to be begun again at a time."""

    call: int | None
    attempt: int = 0
    retry_ms: int = 0


@dataclass(frozen=True, slots=True)
class Down:
    """Not a member, and nothing is done about it. The goodbye may still be under way."""

    leave_call: int | None = None


@dataclass(frozen=True, slots=True)
class Discover:
    """Looking for the coordinator, to join."""

    search: Search


@dataclass(frozen=True, slots=True)
class Joining:
    """The join is under way; or it waits: for a time, or for topics that a pattern could match."""

    call: int | None
    attempt: int = 0
    retry_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Syncing:
    """In a new generation, without the assignment; the leader may still be working on it."""

    call: int
    sent_ms: int
    # The id of the leader, as the join was answered; empty when the member comes back after a crash.
    leader: str = ""
    # The call is the leader's own work, and the sync comes after it.
    plans: bool = False


@dataclass(frozen=True, slots=True)
class Stable:
    """In a generation, with its assignment."""


@dataclass(frozen=True, slots=True)
class Revoking:
    """The application lets partitions go."""

    revocation: int
    partitions: frozenset[Partition]
    deadline_ms: int
    then: AfterRevocation
    # What comes in exchange, once they are gone.
    added: frozenset[Partition] = frozenset()


@dataclass(frozen=True, slots=True)
class Rediscover:
    """The coordinator is lost, the membership is not: it goes on where it was."""

    search: Search
    back: Stable | Revoking


@dataclass(frozen=True, slots=True)
class Stopped:
    """It ends, once it has said goodbye."""

    leave_call: int | None
    reason: str
    failed: bool


State = Down | Discover | Joining | Syncing | Stable | Revoking | Rediscover | Stopped
