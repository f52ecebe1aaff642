"""Inputs (events) and outputs (actions) of a replica set."""

from dataclasses import dataclass
from enum import Enum


class ProcessRole(Enum):
    """Role of a process within its replica."""

    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True)
class ReplicaPolicy:
    """Timeouts and restart backoff of a workload's replicas, in milliseconds."""

    # True if a sidecar runs beside the application.
    has_sidecar: bool = True
    # Grace period of a replica, for all steps of its shutdown together.
    grace_ms: int = 30_000
    # Part of the grace period for the sidecar's drain.
    drain_ms: int = 10_000
    # Grace period after a forced stop.
    forced_grace_ms: int = 2_000
    backoff_ms: int = 500
    backoff_max_ms: int = 30_000
    # After running for this long, the next restart has the initial backoff again.
    backoff_reset_ms: int = 10_000


# ---------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class DesiredReplicas:
    """Event: the desired number of replicas has changed."""

    replicas: int


@dataclass(frozen=True, slots=True)
class Started:
    """Event: a process is running."""

    run: int


@dataclass(frozen=True, slots=True)
class Exited:
    """Event: a process has exited, or could not be started."""

    run: int
    code: int


@dataclass(frozen=True, slots=True)
class Drained:
    """Event: a drain has finished, completely if `reason` is empty."""

    run: int
    # Reason of an incomplete drain; empty: complete.
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ForceStop:
    """Event: skip all drains and shorten grace periods."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: a deadline may have passed."""


Event = DesiredReplicas | Started | Exited | Drained | ForceStop | Tick

# --------------------------------------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class Start:
    """Action: start a process; `run` identifies it from now on."""

    run: int
    replica: int
    part: ProcessRole


@dataclass(frozen=True, slots=True)
class Drain:
    """Action: request a drain from a sidecar."""

    run: int


@dataclass(frozen=True, slots=True)
class Terminate:
    """Action: send SIGTERM to a process."""

    run: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Action: kill a process."""

    run: int


@dataclass(frozen=True, slots=True)
class Restarting:
    """Action: report that a process exited by itself and will be restarted at `at_ms`."""

    replica: int
    part: ProcessRole
    code: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class ReplicaStopped:
    """Action: report that no process of the replica is left."""

    replica: int


@dataclass(frozen=True, slots=True)
class DrainFailed:
    """Action: report an incomplete drain; records in flight will be redelivered."""

    replica: int
    reason: str


Action = Start | Drain | Terminate | Kill | Restarting | ReplicaStopped | DrainFailed
