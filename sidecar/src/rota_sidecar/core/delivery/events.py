"""
Events of the delivery core: from the member, the application and Fleet, outcomes of its actions, and ticks.

An outcome carries the number of the action that it belongs to; the core ignores outcomes that it no longer waits for. Events of which
there are some for each record are tuples, which are made in a third of the time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery.config import DeliveryConfig
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.core.ledger.rules import Verdict
from rota_sidecar.core.member.partitions import Partition, Tenure

# ---------------------------------------------------------------------------------------------- from the member


@dataclass(frozen=True, slots=True)
class Assigned:
    """Partitions that the member owns from now on, under a new tenure; the set may be empty."""

    tenure: Tenure
    partitions: frozenset[Partition]
    # True: assigned by the application without a member, as Kafka's `assign`. Commits carry no generation.
    is_manual: bool = False


@dataclass(frozen=True, slots=True)
class Revoke:
    """Request to release partitions until `deadline_ms`, answered with ReleasePartitions."""

    revocation: int
    partitions: frozenset[Partition]
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Revoked:
    """Partitions that the member no longer owns, after their revocation."""

    partitions: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class Lost:
    """Partitions that the member lost; another member may own them already."""

    partitions: frozenset[Partition]
    reason: str


@dataclass(frozen=True, slots=True)
class CoordinatorRegained:
    """The coordinator was found again with the membership kept: it accepts commits again."""


@dataclass(frozen=True, slots=True)
class LeftGroup:
    """Outcome of Leave: the member is in no group now."""


# ---------------------------------------------------------------------------------------------- outcomes


@dataclass(frozen=True, slots=True)
class Committed:
    """Outcome of a commit: one error code for each of its partitions."""

    request: int
    errors: Mapping[Partition, pb.ErrorCode.ValueType]


@dataclass(frozen=True, slots=True)
class CommittedFetched:
    """Outcome of FetchCommitted; `error` is of the whole request."""

    request: int
    error: pb.ErrorCode.ValueType
    offsets: Mapping[Partition, "Stored"]


@dataclass(frozen=True, slots=True)
class Stored:
    """A committed offset as the coordinator stores it; -1: none."""

    offset: int
    metadata: str
    leader_epoch: int = -1
    error: pb.ErrorCode.ValueType = pb.NONE


@dataclass(frozen=True, slots=True)
class OffsetsListed:
    """Outcome of ListOffsets. For partitions that `bounds` leaves out, `problem` says why; empty: they do not exist."""

    request: int
    bounds: Mapping[Partition, "Bounds"]
    problem: str = ""
    # True: the backend denies access, and a retry cannot succeed.
    refused: bool = False


class Bounds(NamedTuple):
    """Log start offset, and end offset: the offset after the last record that the group may read."""

    start: int
    end: int


class Read(NamedTuple):
    """Outcome of a fetch: batches, which may be none, and the offset of the next fetch."""

    delivery_epoch: int
    batches: Sequence[Batch]
    next_offset: int
    bounds: Bounds


class FetchError(Enum):
    """Causes of a failed fetch."""

    OUT_OF_RANGE = "out of range"
    UNKNOWN_TOPIC = "unknown topic"
    # The topic was deleted and created again under the same name.
    OTHER_TOPIC = "other topic"
    DENIED = "denied"
    UNREACHABLE = "unreachable"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """Outcome of a fetch that failed."""

    delivery_epoch: int
    fetch_error: FetchError
    # Message for users, without the partition's name.
    message: str
    # Of CORRUPT: the batch, if the backend has its bytes.
    unreadable: "Unreadable | None" = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A batch that cannot be decoded. `batch` holds one record, whose value is the batch's bytes."""

    batch: Batch
    # Offset after the batch.
    next_offset: int
    # Reason for the dead letter's header.
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLetterWritten:
    """Outcome of WriteDeadLetter: durable, unless `problem` says why not."""

    dead_letter: int
    problem: str = ""


# ---------------------------------------------------------------------------------------------- from the application


@dataclass(frozen=True, slots=True)
class Attached:
    """An application attached. The driver admits one at a time. The flags are those of core.Traits."""

    session: int
    commits_itself: bool = False
    reads_itself: bool = False
    takes_many: bool = True
    takes_commits: bool = False


@dataclass(frozen=True, slots=True)
class Detached:
    """The application detached. `clean`: by a request; else it or its connection crashed."""

    session: int
    clean: bool


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The application has handled an assignment event."""

    event_id: int


class Credit(NamedTuple):
    """The application accepts this many more records."""

    records: int


class Judged(NamedTuple):
    """Verdicts of the application."""

    judgements: Sequence["Judgement"]


class Judgement(NamedTuple):
    """Verdict on the records from offset `first` to `last`, inclusive; RETRY and DEAD_LETTER name one record."""

    delivery_epoch: int
    partition: Partition
    first: int
    last: int
    verdict: Verdict
    retry_after_ms: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Reported:
    """Positions of an application that fetches records itself."""

    positions: Sequence["ReportedPosition"]
    # Of the last micro-batch, for metrics; it changes no state.
    progress: "QueryProgress | None" = None


@dataclass(frozen=True, slots=True)
class ReportedPosition:
    """Offset of the first record that is not done, and its timestamp in ms of Unix time."""

    partition: Partition
    tenure: int
    position: int
    timestamp_ms: int | None
    # True: only the timestamp of the record at `position` is reported, and no record counts as done.
    timestamp_only: bool = False


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """A micro-batch of a streaming query."""

    rows: int
    rows_per_second: float
    batch_seconds: float


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """
    Commit request of the application. Answered with Answer.

    An offset is also the final verdict on all records before it. None: commit each partition up to its first record without a
    final verdict.
    """

    request: int
    offsets: Mapping[Partition, "RequestedOffset"] | None
    # 0: the present tenure of each partition.
    tenure: int = 0


@dataclass(frozen=True, slots=True)
class RequestedOffset:
    """Offset to commit, as the application gave it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class SeekRequested:
    """Seek request of the application: offsets to read from; -1: the end, -2: the start. Answered with Answer."""

    request: int
    offsets: Mapping[Partition, int]


@dataclass(frozen=True, slots=True)
class PauseRequested:
    """Request to dispatch no records of these partitions. Answered with Answer."""

    request: int
    partitions: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    """Request to dispatch records of these partitions again. Answered with Answer."""

    request: int
    partitions: frozenset[Partition]


# ---------------------------------------------------------------------------------------------- from Fleet and lifecycle


@dataclass(frozen=True, slots=True)
class Configure:
    """Replace the settings; records in flight stay under the former ones."""

    config: DeliveryConfig


@dataclass(frozen=True, slots=True)
class Drain:
    """
    Stop dispatch and commit completed records. Outcome: Drained, when no record is in flight, or at the deadline.

    With `leaves_group` Leave follows once the application has also said goodbye, and Rejoin after Undrain. With `serves_until_ms`
    the application is served until HandOver, or until that time, and the drain begins then.
    """

    deadline_ms: int
    leaves_group: bool = False
    serves_until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class HandOver:
    """Drain now instead of serving the application until a successor waits: one waits for the member's instance, or none comes."""

    has_successor: bool


@dataclass(frozen=True, slots=True)
class Undrain:
    """Resume dispatch after a drain."""


@dataclass(frozen=True, slots=True)
class ResetOffsets:
    """Commit these offsets and read from them, if the member is in this generation. Answered with Answer."""

    request: int
    generation: int
    offsets: Mapping[Partition, int]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time of the core's alarm."""


FromMember = Assigned | Revoke | Revoked | Lost | CoordinatorRegained | LeftGroup
Outcome = Committed | CommittedFetched | OffsetsListed | Read | ReadFailed | DeadLetterWritten
FromApplication = Attached | Detached | Acknowledged | Credit | Judged | Reported
ApplicationRequest = CommitRequested | SeekRequested | PauseRequested | ResumeRequested
Order = Configure | Drain | Undrain | HandOver | ResetOffsets
Event = FromMember | Outcome | FromApplication | ApplicationRequest | Order | Tick
