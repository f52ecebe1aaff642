"""What a set of replicas hears, and what it has done."""

from dataclasses import dataclass
from enum import Enum


class ProcessRole(Enum):
    """A process of a replica."""

    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True)
class ReplicaPolicy:
    """How patient it is."""

    # Whether there is a sidecar beside the application.
    has_sidecar: bool = True
    # How long who is asked to end may take, all parts together.
    grace_ms: int = 30_000
    # Of that: how long its sidecar may take to let the application finish what it has in hand.
    drain_ms: int = 10_000
    # How long it may take once nobody wants to wait any more.
    forced_grace_ms: int = 2_000
    backoff_ms: int = 500
    backoff_max_ms: int = 30_000
    # Who was up for so long begins anew with the shortest wait.
    backoff_reset_ms: int = 10_000


# ---------------------------------------------------------------------------------------------- heard


@dataclass(frozen=True, slots=True)
class DesiredReplicas:
    """There are to be so many."""

    replicas: int


@dataclass(frozen=True, slots=True)
class Started:
    """A process runs."""

    run: int


@dataclass(frozen=True, slots=True)
class Exited:
    """A process has ended, or could not be started."""

    run: int
    code: int


@dataclass(frozen=True, slots=True)
class Drained:
    """A sidecar has answered that nothing is in hand any more, or that something is, or has not answered."""

    run: int
    # Why not; empty: it is drained.
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ForceStop:
    """Nobody wants to wait for those that end."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The alarm has come."""


Event = DesiredReplicas | Started | Exited | Drained | ForceStop | Tick

# ---------------------------------------------------------------------------------------------- done


@dataclass(frozen=True, slots=True)
class Start:
    """Start this part of a replica; the run is its name from now on."""

    run: int
    replica: int
    part: ProcessRole


@dataclass(frozen=True, slots=True)
class Drain:
    """Ask this sidecar to have the application finish, and to hand out nothing more."""

    run: int


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask it to end."""

    run: int


@dataclass(frozen=True, slots=True)
class Kill:
    """End it."""

    run: int


@dataclass(frozen=True, slots=True)
class Restarting:
    """To be told: it has ended by itself, and is started again then."""

    replica: int
    part: ProcessRole
    code: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class ReplicaStopped:
    """To be told: nothing of this replica runs any more."""

    replica: int


@dataclass(frozen=True, slots=True)
class DrainFailed:
    """To be told: it goes without having finished; what it had in hand comes again."""

    replica: int
    reason: str


Action = Start | Drain | Terminate | Kill | Restarting | ReplicaStopped | DrainFailed
