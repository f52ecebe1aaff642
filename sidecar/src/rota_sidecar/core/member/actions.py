"""All that a member wants done. The shell performs it, in order, and feeds the outcomes back as events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member.identity import SavedMembership
from rota_sidecar.core.member.messages import Request
from rota_sidecar.core.member.partitions import Partition, Tenure


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Find the coordinator and connect to it: Found, or Failed."""

    call: int
    within_ms: int


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Ask the coordinator: Answered, or Failed."""

    call: int
    request: Request
    within_ms: int


@dataclass(frozen=True, slots=True)
class ComputeAssignment:
    """Do the leader's work for these members: Led, or Failed."""

    call: int
    # Of the leader itself.
    member_id: str
    strategy: str
    generation: int
    members: Sequence[pb.Member]
    within_ms: int


@dataclass(frozen=True, slots=True)
class SaveMembership:
    """Keep this outside of the process."""

    saved: SavedMembership


@dataclass(frozen=True, slots=True)
class DeleteMembership:
    """Keep nothing any more: nobody may come back as this member."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The member is in this generation."""

    member_id: str
    generation: int
    incarnation: int
    strategy: str
    leads: bool
    # As the answer had it: empty where the engine runs another protocol for the group.
    leader: str


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions are the member's from now on, in this tenure; there may be none."""

    tenure: Tenure
    partitions: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class Revoke:
    """Let these go until then, and post PartitionsReleased."""

    revocation: int
    partitions: frozenset[Partition]
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Revoked:
    """These are the member's no longer, in good order."""

    partitions: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class Lost:
    """These are the member's no longer, and may be another's already: nothing can be committed for them."""

    partitions: frozenset[Partition]
    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of a commit, for each of its partitions."""

    request: int
    errors: Mapping[Partition, pb.ErrorCode.ValueType]


@dataclass(frozen=True, slots=True)
class Fetched:
    """What is committed; an error stands for all partitions."""

    request: int
    error: pb.ErrorCode.ValueType
    topics: Sequence[pb.FetchedTopic] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """Something is wrong that somebody may have to mend: one sentence, said once as long as it lasts."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The member will do nothing any more."""

    reason: str
    # It was not asked to.
    failed: bool


Action = (
    FindCoordinator
    | SendRequest
    | ComputeAssignment
    | SaveMembership
    | DeleteMembership
    | Joined
    | Assign
    | Revoke
    | Revoked
    | Lost
    | Committed
    | Fetched
    | Problem
    | Ended
)
