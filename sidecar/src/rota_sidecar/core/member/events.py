"""
All that can happen to a member.

A request goes out with the number of its call, and its outcome comes back with that number: what belongs to a call
that the member waits for no longer changes nothing.
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
    """Be a member; who it was before a crash, where that is known."""

    saved: SavedMembership | None = None


@dataclass(frozen=True, slots=True)
class End:
    """Revoke everything within this time, then leave the group; LeaveGroup takes at most the same time again."""

    within_ms: int
    reason: str
    # Else it can be started again.
    final: bool = True
    # A static member keeps its place while its process restarts; unless it goes for good.
    leave_static: bool = False


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Want other topics."""

    subscription: Subscription


@dataclass(frozen=True, slots=True)
class OfferStrategies:
    """Offer other strategies, the preferred one first."""

    strategies: tuple[Strategy, ...]


@dataclass(frozen=True, slots=True)
class TopicsDescribed:
    """The topics of interest that there are now, each with its number of partitions."""

    partitions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RatesMeasured:
    """How many records a second arrive in partitions that the member has."""

    rates: Mapping[str, Mapping[int, float]]


@dataclass(frozen=True, slots=True)
class CoordinatorFound:
    """The outcome of a search for the coordinator."""

    call: int
    error: pb.ErrorCode.ValueType


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The coordinator has answered."""

    call: int
    response: Response


@dataclass(frozen=True, slots=True)
class CallFailed:
    """There is no answer, and none will come."""

    call: int
    reason: str
    # Asking again does not help.
    refused: bool = False


@dataclass(frozen=True, slots=True)
class AssignmentComputed:
    """The leader's work is done: what each member is given, and the partitions of each topic that it was done for."""

    call: int
    assignments: Sequence[pb.Assignment]
    partitions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RebalanceNoticed:
    """The coordinator pushed that a generation ends."""

    member_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """The connection ended, or the coordinator is about to hand the group over."""

    reason: str


@dataclass(frozen=True, slots=True)
class PartitionsReleased:
    """The application has let go of all that this revocation named, and what it had finished is committed."""

    revocation: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit offsets, each under the tenure in which its partition was received."""

    request: int
    offsets: Mapping[Partition, Offset] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fetch:
    """Look up what is committed."""

    request: int
    partitions: Sequence[Partition]


@dataclass(frozen=True, slots=True)
class Tick:
    """The time that the member asked for has come."""


Command = Start | End | Subscribe | OfferStrategies
"""What others want of the member."""

Outcome = CoordinatorFound | ResponseReceived | CallFailed | AssignmentComputed
"""What became of a call."""

OffsetRequest = Commit | Fetch
"""What others want of the coordinator."""

Event = (
    Command
    | Outcome
    | OffsetRequest
    | TopicsDescribed
    | RatesMeasured
    | RebalanceNoticed
    | CoordinatorLost
    | PartitionsReleased
    | Tick
)
