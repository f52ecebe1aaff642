"""All that deliveries want done. The shell performs it, in order, and feeds the outcomes back as events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.ledger.batches import BatchSlice, Dispatch
from rota_sidecar.core.member.partitions import Offset, Partition, Tenure

# ---------------------------------------------------------------------------------------------- to the engine


@dataclass(frozen=True, slots=True)
class FetchCommitted:
    """Look up what is committed (with `require_stable`): Found."""

    request: int
    partitions: frozenset[Partition]
    is_manual: bool


@dataclass(frozen=True, slots=True)
class ListOffsets:
    """Look up where partitions start and end: OffsetsListed."""

    request: int
    partitions: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit: Committed. Under the tenures in the offsets, or under no generation."""

    request: int
    offsets: Mapping[Partition, Offset]
    is_manual: bool


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read what lies at the offset, or wait until something does: Read or ReadFailed, once, under this ledger."""

    delivery_epoch: int
    partition: Partition
    offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class StopFetching:
    """Nothing is wanted for this ledger any more; a Read that is on its way may still come."""

    delivery_epoch: int


@dataclass(frozen=True, slots=True)
class WriteDeadLetter:
    """Put this record into the dead-letter topic: DeadLetterWritten. May be written twice, never not at all."""

    dead_letter: int
    topic: str
    partition: Partition
    batch_slice: BatchSlice
    reason: str
    deliveries: int


# ---------------------------------------------------------------------------------------------- to the member


@dataclass(frozen=True, slots=True)
class ReleasePartitions:
    """Everything of this revocation is let go, and committed as far as it goes."""

    revocation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the group, at once, and stay away until Rejoin: Lost or Revoked for what there is, then Stood."""

    reason: str


@dataclass(frozen=True, slots=True)
class Rejoin:
    """Be a member again."""


# ---------------------------------------------------------------------------------------------- to the application


class Kind(Enum):
    """The change of an assignment."""

    ASSIGNED = "assigned"
    REVOKING = "revoking"
    REVOKED = "revoked"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class AssignmentEvent:
    """Something happens to partitions; with REVOKING until when they are let go."""

    event_id: int
    kind: Kind
    partitions: frozenset[Partition]
    tenure: Tenure | None
    deadline_ms: int | None = None
    reason: str = ""


class ErrorKind(Enum):
    """Why an application gets no records of a partition, as far as it can react to that."""

    # Nothing is committed, and the settings name no position to begin at.
    NO_OFFSET = "no offset"
    OFFSET_OUT_OF_RANGE = "offset out of range"
    UNKNOWN_TOPIC = "unknown topic"
    TOPIC_AUTHORIZATION = "topic authorization"
    GROUP_AUTHORIZATION = "group authorization"
    CORRUPT_RECORD = "corrupt record"


@dataclass(frozen=True, slots=True)
class PartitionError:
    """
    Tell the application why it gets no records of these partitions: once per occurrence, and after it has acknowledged them.

    A seek that is answered with this ledger or a higher one came later, and has settled the error.
    """

    delivery_epoch: int
    kind: ErrorKind
    partitions: Sequence[Partition]
    message: str


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand these over."""

    delivery_epoch: int
    partition: Partition
    tenure: Tenure
    dispatch: Dispatch


@dataclass(frozen=True, slots=True)
class Refuse:
    """The application was wrong about this record."""

    delivery_epoch: int
    partition: Partition
    offset: int
    message: str


@dataclass(frozen=True, slots=True)
class Answer:
    """To what was asked: an error for each partition, or one for all."""

    request: int
    error: pb.ErrorCode.ValueType = pb.NONE
    errors: Mapping[Partition, pb.ErrorCode.ValueType] | None = None
    offsets: Mapping[Partition, int] | None = None
    message: str = ""
    # To a seek: the last ledger there was before it. What is handed out of it, or of one before, is void.
    delivery_epoch: int = 0


# ---------------------------------------------------------------------------------------------- to those who run it


@dataclass(frozen=True, slots=True)
class Settled:
    """The application has given its verdicts; for the metrics."""

    partition: Partition
    verdict: str
    records: int


@dataclass(frozen=True, slots=True)
class Drained:
    """Nothing is in hand; or time is up, and this many still are."""

    left: int


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem that an operator may have to solve: one message, reported once as long as it lasts."""

    message: str
    partitions: Sequence[Partition] = ()


Action = (
    FetchCommitted
    | ListOffsets
    | Commit
    | Fetch
    | StopFetching
    | WriteDeadLetter
    | ReleasePartitions
    | Leave
    | Rejoin
    | AssignmentEvent
    | PartitionError
    | Deliver
    | Refuse
    | Answer
    | Settled
    | Drained
    | Problem
)
