"""Actions of the member core. `membership.driver` performs them in order and posts their outcomes back as events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member.identity import SavedMembership
from rota_sidecar.core.member.messages import Request
from rota_sidecar.core.member.partitions import Partition, Tenure


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Find the group's coordinator and connect to it. Outcome: CoordinatorFound or CallFailed."""

    call: int
    within_ms: int


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send a request to the coordinator. Outcome: ResponseReceived or CallFailed."""

    call: int
    request: Request
    within_ms: int


@dataclass(frozen=True, slots=True)
class ComputeAssignment:
    """Compute the assignment of the group as its leader. Outcome: AssignmentComputed or CallFailed."""

    call: int
    # The leader's own member id.
    member_id: str
    strategy: str
    generation: int
    members: Sequence[pb.Member]
    within_ms: int


@dataclass(frozen=True, slots=True)
class SaveMembership:
    """Save the membership in the state file, so that a restarted sidecar resumes it."""

    saved: SavedMembership


@dataclass(frozen=True, slots=True)
class DeleteMembership:
    """Delete the saved membership: the group no longer knows this member id."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Report that the member joined a generation."""

    member_id: str
    generation: int
    incarnation: int
    strategy: str
    leads: bool
    # Member id of the group's leader; empty where the broker assigns partitions itself.
    leader: str


@dataclass(frozen=True, slots=True)
class CoordinatorRegained:
    """Report that the coordinator was found again with the membership kept: it accepts commits again."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Assign partitions to the application under a new tenure; the set may be empty."""

    tenure: Tenure
    partitions: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class Revoke:
    """Revoke partitions until `deadline_ms`. Outcome: PartitionsReleased with the same revocation number."""

    revocation: int
    partitions: frozenset[Partition]
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Revoked:
    """Report partitions that were revoked after the application released them."""

    partitions: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class Lost:
    """Report partitions that the member lost: another member may own them already, so commits for them fail."""

    partitions: frozenset[Partition]
    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    """Outcome of a commit: one error code for each of its partitions."""

    request: int
    errors: Mapping[Partition, pb.ErrorCode.ValueType]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Outcome of a fetch of committed offsets; `error` is of the whole request."""

    request: int
    error: pb.ErrorCode.ValueType
    topics: Sequence[pb.FetchedTopic] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """Report a problem that an operator may have to correct, once for as long as it lasts."""

    message: str


@dataclass(frozen=True, slots=True)
class GiveUpMembership:
    """Give a dynamic member's membership up for another process: this one has sent its last request under it."""

    saved: SavedMembership


@dataclass(frozen=True, slots=True)
class Ended:
    """Report that the member has stopped and handles no more events."""

    reason: str
    # True: an error stopped it, and not an End command.
    failed: bool
    # True: another process has taken its instance id.
    is_fenced: bool = False


Action = (
    FindCoordinator
    | SendRequest
    | ComputeAssignment
    | SaveMembership
    | DeleteMembership
    | GiveUpMembership
    | Joined
    | CoordinatorRegained
    | Assign
    | Revoke
    | Revoked
    | Lost
    | Committed
    | Fetched
    | Problem
    | Ended
)
