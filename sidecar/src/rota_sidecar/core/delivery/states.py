"""Values of a partition: its states, problems, error codes, requests, and its view for metrics. All are immutable."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery.actions import ErrorKind
from rota_sidecar.core.delivery.events import Bounds, RequestedOffset
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.core.ledger.rules import Rules
from rota_sidecar.core.member.partitions import Partition, Tenure

Error: TypeAlias = pb.ErrorCode.ValueType

# Errors that pass without an operator; a retry succeeds.
TRANSIENT = frozenset(
    {
        pb.COORDINATOR_LOAD_IN_PROGRESS,
        pb.COORDINATOR_NOT_AVAILABLE,
        pb.NOT_COORDINATOR,
        pb.REBALANCE_IN_PROGRESS,
        pb.REQUEST_TIMED_OUT,
        pb.UNSTABLE_OFFSET_COMMIT,
    }
)
# Errors of a generation that has ended. Either the member has lost the partition, and a Lost event follows, or it has kept
# the partition, and the next attempt is made in the present generation.
FENCED = frozenset({pb.FENCED_INSTANCE_ID, pb.ILLEGAL_GENERATION, pb.UNKNOWN_MEMBER_ID})
ADVICE = {
    pb.ILLEGAL_GENERATION: "it was reassigned, to another member or in a new tenure: continue with the present assignment",
    pb.UNKNOWN_TOPIC_OR_PARTITION: "it does not exist or is not assigned to this member: check the assignment",
    pb.OFFSET_OUT_OF_RANGE: "the offset must be 0 or higher (a seek also takes -1, the end, and -2, the start)",
    pb.OFFSET_METADATA_TOO_LARGE: "the metadata is longer than the coordinator allows: shorten it",
}


class Edge(Enum):
    """Edge of a partition's log."""

    START = auto()
    END = auto()


class FetchingCommitted(NamedTuple):
    """FetchCommitted is under way (`request`), or is sent at `retry_ms`."""

    request: int | None = None
    attempt: int = 0
    retry_ms: int = 0


class ResolvingOffset(NamedTuple):
    """ListOffsets is under way (`request`), or is sent at `retry_ms`; the partition then starts at `edge`."""

    edge: Edge
    # The seek that waits for the offset; None: the settings chose the edge.
    seek_request: int | None = None
    request: int | None = None
    attempt: int = 0
    retry_ms: int = 0


class Running(NamedTuple):
    """The partition is fetched, dispatched and committed."""


class Stopped(NamedTuple):
    """The partition has no position until a seek or a reset; verdicts of its former fetch session, if any, are committed."""

    message: str


class Revoking(NamedTuple):
    """The partition is being revoked: nothing is dispatched, records in flight are completed and committed."""

    # REVOKING event that the application has not acknowledged.
    event_id: int | None = None
    # True after the application's deadline: records in flight are not waited for.
    timed_out: bool = False
    # True: the coordinator refused the last commit for good.
    refused: bool = False
    # True: ReleasePartitions was sent, so nothing is committed any more.
    released: bool = False


State = FetchingCommitted | ResolvingOffset | Running | Stopped | Revoking


class Terms(NamedTuple):
    """Terms of a fetch session. Invariant: constant for its life; under other terms the session is replaced."""

    rules: Rules
    # True: commits carry metadata. False where the application commits or fetches by itself.
    has_metadata: bool


class Subject(Enum):
    """Subjects of a partition's problems, the most fundamental first; a partition has at most one problem of each."""

    BEGINNING = auto()
    READING = auto()
    RECORD = auto()
    DEAD_LETTERS = auto()
    COMMITTING = auto()


class PartitionProblem(NamedTuple):
    """Present problem of a partition; with `kind`, the application is notified of it."""

    message: str
    kind: ErrorKind | None = None


class RecordTime(NamedTuple):
    """Timestamp in ms of the record at an offset; None: there is no such record yet."""

    offset: int
    timestamp_ms: int | None


class PendingCommit(NamedTuple):
    """A commit request; without an offset, up to the first record without a final verdict."""

    request: int
    offset: RequestedOffset | None
    # True: read from the offset once it is committed.
    seeks: bool = False


class CommitNeed(Enum):
    """The time of a partition's next commit."""

    # Everything is committed.
    NOTHING = auto()
    # An outcome is awaited: of the commit under way, or of the wait before another attempt.
    WAITS = auto()
    # At the end of the commit interval.
    LATER = auto()
    NOW = auto()


class PartitionView(NamedTuple):
    """State of one partition, for metrics and Fleet."""

    tenure: Tenure
    # Offset of the next record that is dispatched for the first time; None: the initial position is unknown.
    position: int | None
    # None: nothing is committed, as far as is known.
    committed: int | None
    bounds: Bounds | None
    # Number of records in flight, and of fetched records that are not.
    in_flight: int
    waiting: int
    # First record without a final verdict: its batch and offset; None: it was not fetched.
    first_unresolved: tuple[Batch, int] | None
    # Timestamp in ms of that record, as reported by an application that fetches records itself.
    reported_ms: int | None
    # Message why the partition makes no progress; empty: it does.
    stopped: str
    # Message about the present problem, also a transient one; empty: none.
    problem: str


def name_of(error: Error) -> str:
    """Return Kafka's name of an error; the number of an unknown one."""
    return pb.ErrorCode.Name(error) if error in pb.ErrorCode.values() else str(error)


def message_of(errors: Mapping[Partition, Error]) -> str:
    """Return a message about the first partition with an error; empty: no partition has one."""
    failed = sorted(partition for partition, error in errors.items() if error != pb.NONE)
    if not failed:
        return ""
    first = failed[0]
    others = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    advice = ADVICE.get(errors[first], "see the coordinator's log")
    return f"{first.topic}-{first.number}{others}: {name_of(errors[first])}, {advice}"
