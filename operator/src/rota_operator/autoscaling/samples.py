"""Sample of a group, as the autoscaler needs it, and what is wrong with it. Made by `measure`, kept by `history`."""

import math
from dataclasses import dataclass
from enum import Enum


class GroupActivity(Enum):
    """State of the group, as far as decisions depend on it."""

    STABLE = "stable"
    # Members join or leave, or have not joined yet.
    REBALANCING = "rebalancing"
    # No replicas are wanted, and the group has no members.
    EMPTY = "empty"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """Load of one partition."""

    # As TOPIC-NUMBER.
    name: str
    # Records per second that arrive.
    arrival_rate: float
    # Number of uncommitted records.
    backlog: int
    # Records per second that arrive in the other partitions of its owner, and those of them that a rebalance would move to other members;
    # 0 unless the strategy of the group moves partitions by load.
    neighbour_rate: float = 0.0
    moving_rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """State and load of a group at one time; None is unknown, never zero."""

    at_ms: int
    activity: GroupActivity
    # Desired number of replicas.
    replicas: int
    # Members that are in the group.
    members: int | None = None
    generation: int | None = None
    # End of the last rebalance that was seen.
    rebalanced_ms: int | None = None
    # Typical duration of the group's recent rebalances; None: none was measured.
    pause_ms: int | None = None
    partitions: int | None = None
    # Records per second that arrive, in all partitions.
    arrival_rate: float | None = None
    # Number of uncommitted records, in all partitions.
    backlog: int | None = None
    # Age of the oldest uncommitted record.
    lag_seconds: float | None = None
    # The partitions with the most load, at most HOTTEST_MAX of `measure`.
    hottest: tuple[PartitionLoad, ...] = ()
    # No records are delivered, on purpose.
    is_suspended: bool = False
    # Members whose sidecars do not report.
    silent: int = 0
    # Some partitions or members are unknown: rate and backlog are lower bounds.
    is_partial: bool = False
    # Records that were processed since the sample before, and the time with records in flight, summed over members.
    done: int = 0
    busy_seconds: float = 0.0
    # The workload replaces its replicas.
    is_rolling_out: bool = False
    # Records per second that a replica may process at most, by a rate limit; None: no limit.
    service_rate_max: float | None = None


def problem_of(sample: Sample) -> str:
    """Return why a sample says nothing about the load; an empty string if it does."""
    if sample.activity is GroupActivity.UNKNOWN:
        return "the state of the group is unknown"
    if sample.silent and sample.silent >= (sample.members or 0):
        return "no sidecar of the group reports"
    if sample.partitions is None:
        return "the number of partitions is unknown"
    if sample.partitions > 0 and sample.arrival_rate is None:
        return "the arrival rate is unknown"
    if sample.partitions > 0 and sample.backlog is None:
        return "the backlog is unknown"
    numbers = (
        ("arrival rate", sample.arrival_rate),
        ("backlog", sample.backlog),
        ("lag", sample.lag_seconds),
        ("number of partitions", sample.partitions),
        ("number of replicas", sample.replicas),
        ("busy time", sample.busy_seconds),
        ("number of processed records", sample.done),
        *((f"arrival rate of {each.name}", each.arrival_rate) for each in sample.hottest),
        *((f"backlog of {each.name}", each.backlog) for each in sample.hottest),
        *((f"arrival rate beside {each.name}", each.neighbour_rate) for each in sample.hottest),
        *((f"arrival rate that moves away from {each.name}", each.moving_rate) for each in sample.hottest),
    )
    for name, value in numbers:
        if value is not None and (not math.isfinite(value) or value < 0):
            return f"the {name} is {value}"
    return ""
