"""Snapshot of all groups and workloads, as page and table show it. None means unknown."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from rota_operator.overview.assignment import Partition


class EventKind(Enum):
    """Category of an event."""

    REBALANCE = "rebalance"
    JOINED = "joined"
    LEFT = "left"
    PROCESS = "process"
    SCALE = "scale"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """Event in a group's history."""

    at_ms: int
    kind: EventKind
    message: str
    generation: int | None = None
    # Of a rebalance: duration in milliseconds until the group was stable.
    pause_ms: int | None = None
    # Of a rebalance: number of partitions that have another owner.
    moved: int | None = None


@dataclass(frozen=True, slots=True)
class OwnedPartitions:
    """Partitions that a sidecar reports as its own, and its generation."""

    generation: int
    partitions: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class PartitionView:
    """State of one partition."""

    topic: str
    partition: int
    owner: str | None
    position: int | None = None
    committed: int | None = None
    # Log end offset; with read_committed the last stable offset.
    end: int | None = None
    # Number of uncommitted records, and the age of the first one in seconds.
    lag_records: int | None = None
    lag_seconds: float | None = None
    # Records per second that arrive.
    arrival_rate: float | None = None
    in_flight: int | None = None
    # Log start offset.
    start: int | None = None


@dataclass(frozen=True, slots=True)
class MemberView:
    """State of a member, or of a replica that has not joined."""

    name: str
    member_id: str | None
    state: str
    generation: int | None
    # As TOPIC-NUMBER.
    partitions: tuple[str, ...]
    records_done: int | None = None
    # Records per second that are processed.
    done_rate: float | None = None
    in_flight: int | None = None
    suspended: bool | None = None
    # Delivery to its application is paused; `problems` has the reason and the end.
    draining: bool | None = None
    last_error: str = ""
    # Reasons why the member, or one of its partitions, is not consumed now: one line each.
    problems: tuple[str, ...] = ()
    # Client id and host as the engine reports them; a sidecar's client id is the name of its pod or replica.
    client_id: str | None = None
    host: str | None = None
    # Records that became dead letters since the sidecar started.
    dead_letters: int | None = None
    # How long the sidecar has had no application; None: it has one, or it is not known.
    unattached_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class GroupView:
    """State of one group."""

    group_id: str
    # The ConsumerGroup, as namespace/name.
    name: str
    state: str
    generation: int | None
    strategy: str
    members: tuple[MemberView, ...]
    partitions: tuple[PartitionView, ...]
    # Number of partitions that are not shown.
    partitions_left_out: int
    unowned: int
    lag_records: int | None
    lag_seconds: float | None
    arrival_rate: float | None
    done_rate: float | None
    # Events since the runner was started, newest first.
    rebalances: int
    history: tuple[HistoryEvent, ...]


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """State of a replica's two processes."""

    name: str
    app: str
    sidecar: str | None
    restarts: int


@dataclass(frozen=True, slots=True)
class ScaleDecisionView:
    """Decision of the autoscaler."""

    at_ms: int
    # Number of replicas before, and the number that was decided; the same if nothing is to change.
    before: int
    replicas: int
    # A programmatic identifier, in CamelCase.
    reason: str
    explanation: str
    # True if the decision is only reported.
    dry_run: bool
    # What the decision rests on, by name; with them it can be made again.
    inputs: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """State of one workload."""

    namespace: str
    name: str
    kind: str
    group_id: str | None
    wanted: int
    running: int
    restarts: int
    replicas: tuple[ReplicaView, ...]
    # The last decisions of the autoscaler, newest first; none if it does not scale the workload.
    decisions: tuple[ScaleDecisionView, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """State of everything at one time."""

    at_ms: int
    coordinator: str
    groups: tuple[GroupView, ...]
    workloads: tuple[WorkloadView, ...]
    # Number of groups that are not shown.
    groups_left_out: int = 0
