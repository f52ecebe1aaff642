"""Snapshot of all groups and workloads, as page and table show it. None means unknown."""

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
    """One event in a group's history."""

    at_ms: int
    kind: EventKind
    message: str
    generation: int | None = None
    # Of a rebalance: from its beginning until everybody had what is theirs.
    pause_ms: int | None = None
    # Of a rebalance: how many partitions have another owner.
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
    # Of the log; under read_committed the last stable offset.
    end: int | None = None
    # Uncommitted records, and the age of the first of them.
    lag_records: int | None = None
    lag_seconds: float | None = None
    # Records a second that come.
    arrival_rate: float | None = None
    in_flight: int | None = None
    # Of the log.
    start: int | None = None


@dataclass(frozen=True, slots=True)
class MemberView:
    """State of a member, or of a replica that has not joined."""

    name: str
    member_id: str | None
    state: str
    generation: int | None
    # As topic-number.
    partitions: tuple[str, ...]
    records_done: int | None = None
    # Records a second that are done.
    done_rate: float | None = None
    in_flight: int | None = None
    suspended: bool | None = None
    # Nothing more is handed out to its application; `problems` has the reason and the end.
    draining: bool | None = None
    last_error: str = ""
    # What keeps it, or a partition that it has, from being read now: one sentence each.
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupView:
    """State of one group."""

    group_id: str
    # Of its ConsumerGroup, as namespace/name.
    name: str
    state: str
    generation: int | None
    strategy: str
    members: tuple[MemberView, ...]
    partitions: tuple[PartitionView, ...]
    # There are more than are shown.
    partitions_left_out: int
    unowned: int
    lag_records: int | None
    lag_seconds: float | None
    arrival_rate: float | None
    done_rate: float | None
    # Since this was started; the newest moment is the first one.
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


@dataclass(frozen=True, slots=True)
class View:
    """State of everything at one time."""

    at_ms: int
    coordinator: str
    groups: tuple[GroupView, ...]
    workloads: tuple[WorkloadView, ...]
