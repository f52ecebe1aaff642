"""States of a member. Each one holds the data that exists in that state only."""

import enum
from dataclasses import dataclass

from rota_sidecar.core.member.partitions import Partition


class AfterRevocation(enum.Enum):
    """Next step after a revocation."""

    REJOIN = enum.auto()
    DEPART = enum.auto()


@dataclass(frozen=True, slots=True)
class Search:
    """Search for the coordinator: under way (`call`), or to be retried at `retry_ms`."""

    call: int | None
    attempt: int = 0
    retry_ms: int = 0


@dataclass(frozen=True, slots=True)
class Down:
    """Not in the group, and not joining. LeaveGroup may still be under way."""

    leave_call: int | None = None


@dataclass(frozen=True, slots=True)
class Discover:
    """Finding the coordinator, to join the group."""

    search: Search


@dataclass(frozen=True, slots=True)
class Joining:
    """JoinGroup is under way, or waits for its retry time or for the topics that a pattern matches."""

    call: int | None
    attempt: int = 0
    retry_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Syncing:
    """In a new generation, before its assignment is known."""

    call: int
    sent_ms: int
    # Member id of the leader; empty for a membership that was resumed after a restart.
    leader: str = ""
    # True: `call` is ComputeAssignment, and SyncGroup follows.
    plans: bool = False


@dataclass(frozen=True, slots=True)
class Stable:
    """In a generation, with its assignment."""


@dataclass(frozen=True, slots=True)
class Revoking:
    """Waiting for the application to release partitions."""

    revocation: int
    partitions: frozenset[Partition]
    deadline_ms: int
    then: AfterRevocation
    # Partitions to assign after the revocation.
    added: frozenset[Partition] = frozenset()


@dataclass(frozen=True, slots=True)
class Rediscover:
    """Finding the coordinator again, with the membership kept; continues in the state `back`."""

    search: Search
    back: Stable | Revoking


@dataclass(frozen=True, slots=True)
class Stopped:
    """Stopped for good; LeaveGroup may still be under way."""

    leave_call: int | None
    reason: str
    failed: bool


State = Down | Discover | Joining | Syncing | Stable | Revoking | Rediscover | Stopped
