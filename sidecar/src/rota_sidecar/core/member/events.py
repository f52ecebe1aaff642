"""
Events of the member core: commands, outcomes of calls, observations, and ticks.

A call has a number, and its outcome carries that number. The member ignores the outcome of a call that it no longer
waits for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member.config import Strategy, Subscription
from rota_sidecar.core.member.identity import SavedMembership
from rota_sidecar.core.member.messages import Response
from rota_sidecar.core.member.partitions import Offset, Partition


@dataclass(frozen=True, slots=True)
class Start:
    """Start the member, with the membership of the process before this one, if it was saved."""

    saved: SavedMembership | None = None


@dataclass(frozen=True, slots=True)
class End:
    """Revoke everything within this time, then leave the group; LeaveGroup takes at most the same time again."""

    within_ms: int
    reason: str
    # False: a Start command may follow.
    final: bool = True
    # True: a static member sends LeaveGroup too. False: its partitions wait for its restart.
    leave_static: bool = False
    # True: another process succeeds the member, which stays in the group and deletes its saved membership. A dynamic member leaves
    # the group all the same where its membership cannot be given up, see `core`.
    is_succeeded: bool = False


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Replace the subscription."""

    subscription: Subscription


@dataclass(frozen=True, slots=True)
class OfferStrategies:
    """Replace the offered strategies, in order of preference."""

    strategies: tuple[Strategy, ...]


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Let the group rebalance, such as for the present loads of its partitions. No-op unless the member leads a stable generation."""

    reason: str


@dataclass(frozen=True, slots=True)
class TopicsDescribed:
    """Partition counts of the watched topics that exist."""

    partitions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RatesMeasured:
    """Arrival rates of owned partitions, in records per second, by topic and partition."""

    rates: Mapping[str, Mapping[int, float]]


@dataclass(frozen=True, slots=True)
class CoordinatorFound:
    """Outcome of FindCoordinator."""

    call: int
    error: pb.ErrorCode.ValueType


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """Response of the coordinator to a request."""

    call: int
    response: Response


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A call that ended without a response."""

    call: int
    reason: str
    # True: a retry cannot succeed.
    refused: bool = False


@dataclass(frozen=True, slots=True)
class AssignmentComputed:
    """Outcome of ComputeAssignment: each member's assignment, and the partition count of each topic that was planned."""

    call: int
    assignments: Sequence[pb.Assignment]
    partitions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RebalanceNoticed:
    """Push notice of the coordinator that a generation ends."""

    member_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class HeartbeatRequested:
    """Request for a heartbeat now, whose answer says whether the group rebalances."""


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """End of the connection, or a notice that the coordinator hands the group over."""

    reason: str


@dataclass(frozen=True, slots=True)
class PartitionsReleased:
    """End of a revocation: the application released its partitions, and its completed records are committed."""

    revocation: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit offsets, each under the tenure in which its partition was assigned."""

    request: int
    offsets: Mapping[Partition, Offset] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetch committed offsets."""

    request: int
    partitions: Sequence[Partition]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time of the member's alarm."""


Command = Start | End | Subscribe | OfferStrategies | Rebalance
"""Commands to the member."""

Outcome = CoordinatorFound | ResponseReceived | CallFailed | AssignmentComputed
"""Outcomes of calls."""

OffsetRequest = Commit | Fetch
"""Requests about offsets, sent on behalf of deliveries."""

Event = (
    Command
    | Outcome
    | OffsetRequest
    | TopicsDescribed
    | RatesMeasured
    | RebalanceNoticed
    | HeartbeatRequested
    | CoordinatorLost
    | PartitionsReleased
    | Tick
)
