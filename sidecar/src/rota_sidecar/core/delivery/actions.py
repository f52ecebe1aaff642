"""
Actions of the delivery core. `delivery.driver` performs them in order and posts their outcomes back as events.

An action that has an outcome carries a number (`request`, `delivery_epoch`, `dead_letter`), and the outcome repeats it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.ledger.batches import BatchSlice, Dispatch
from rota_sidecar.core.member.partitions import Offset, Partition, Tenure

# ---------------------------------------------------------------------------------------------- to the engine


@dataclass(frozen=True, slots=True)
class FetchCommitted:
    """Fetch committed offsets, with `require_stable`. Outcome: CommittedFetched."""

    request: int
    partitions: frozenset[Partition]
    is_manual: bool


@dataclass(frozen=True, slots=True)
class ListOffsets:
    """List the start and end offsets of partitions. Outcome: OffsetsListed."""

    request: int
    partitions: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit offsets under their tenures, or without a generation if `is_manual`. Outcome: Committed."""

    request: int
    offsets: Mapping[Partition, Offset]
    is_manual: bool


class Fetch(NamedTuple):
    """Fetch records from `offset` on, waiting for some at the end of the log. Outcome: one Read or ReadFailed."""

    delivery_epoch: int
    partition: Partition
    offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class StopFetching:
    """Cancel the fetch of a delivery epoch; a Read that was posted before is ignored."""

    delivery_epoch: int


@dataclass(frozen=True, slots=True)
class WriteDeadLetter:
    """Write a record to the dead-letter topic, at least once. Outcome: DeadLetterWritten."""

    dead_letter: int
    topic: str
    partition: Partition
    batch_slice: BatchSlice
    reason: str
    deliveries: int


# ---------------------------------------------------------------------------------------------- to the member


@dataclass(frozen=True, slots=True)
class ReleasePartitions:
    """Finish a revocation: its partitions are released, and their completed records are committed unless time ran out."""

    revocation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the group now, until Rejoin. Outcomes: Lost or Revoked for the owned partitions, then LeftGroup."""

    reason: str
    # True: the sidecar is drained, and its application has ended or its successor waits, so another process may succeed a static member.
    is_drained: bool = False
    # True: a successor waits, by the order of Fleet, so it may succeed a dynamic member too.
    has_successor: bool = False


@dataclass(frozen=True, slots=True)
class Rejoin:
    """Join the group again."""


# ---------------------------------------------------------------------------------------------- to the application


class Kind(Enum):
    """The change of an assignment."""

    ASSIGNED = "assigned"
    REVOKING = "revoking"
    REVOKED = "revoked"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class AssignmentEvent:
    """
    Notify the application of a change of its assignment; it answers with Acknowledged.

    `deadline_ms` is set with REVOKING: the time until which the application may work on the partitions.
    """

    event_id: int
    kind: Kind
    partitions: frozenset[Partition]
    tenure: Tenure | None
    deadline_ms: int | None = None
    reason: str = ""


class ErrorKind(Enum):
    """Errors of a partition to which an application can react."""

    # There is no committed offset, and the settings name no initial offset.
    NO_OFFSET = "no offset"
    OFFSET_OUT_OF_RANGE = "offset out of range"
    UNKNOWN_TOPIC = "unknown topic"
    TOPIC_AUTHORIZATION = "topic authorization"
    GROUP_AUTHORIZATION = "group authorization"
    CORRUPT_RECORD = "corrupt record"


@dataclass(frozen=True, slots=True)
class PartitionError:
    """
    Notify the application of an error that stops partitions: once per occurrence, after it acknowledged their assignment.

    A seek whose answer has this delivery epoch or a higher one was made later, and has resolved the error.
    """

    delivery_epoch: int
    kind: ErrorKind
    partitions: Sequence[Partition]
    message: str


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """Notify the application of offsets that the sidecar has committed by itself: once for each commit, in order."""

    offsets: Mapping[Partition, Offset]


class Deliver(NamedTuple):
    """Deliver records to the application."""

    delivery_epoch: int
    partition: Partition
    tenure: Tenure
    dispatch: Dispatch


@dataclass(frozen=True, slots=True)
class Refuse:
    """Reject a verdict on this record; `message` says why."""

    delivery_epoch: int
    partition: Partition
    offset: int
    message: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a request: with an error code for each partition, or with one for the whole request."""

    request: int
    error: pb.ErrorCode.ValueType = pb.NONE
    errors: Mapping[Partition, pb.ErrorCode.ValueType] | None = None
    offsets: Mapping[Partition, int] | None = None
    message: str = ""
    # Of a seek: the last delivery epoch before it. Records of this epoch and of earlier ones are void.
    delivery_epoch: int = 0


# ---------------------------------------------------------------------------------------------- to the observers


class Settled(NamedTuple):
    """Report the number of records that got a verdict, for the metrics."""

    partition: Partition
    verdict: str
    records: int


@dataclass(frozen=True, slots=True)
class AwaitSuccessor:
    """Report that the application of a pod that ends is served until a successor waits, or until this time in ms."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class StopDispatch:
    """Report that a drain begins which was to wait for a successor."""


@dataclass(frozen=True, slots=True)
class Drained:
    """Report the end of a drain; `left` is the number of records still in flight, 0 unless the time limit has passed."""

    left: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Report a problem that an operator may have to correct, once for as long as it lasts."""

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
    | OffsetsCommitted
    | Deliver
    | Refuse
    | Answer
    | Settled
    | AwaitSuccessor
    | StopDispatch
    | Drained
    | Problem
)
