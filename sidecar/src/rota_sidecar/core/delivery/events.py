"""All that can happen to deliveries. Outcomes come back with the number of the request that asked for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery.config import DeliveryConfig
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.core.ledger.rules import Verdict
from rota_sidecar.core.member.partitions import Partition, Tenure

# ---------------------------------------------------------------------------------------------- from the member


@dataclass(frozen=True, slots=True)
class Assigned:
    """The member has these from now on, in this tenure; there may be none."""

    tenure: Tenure
    partitions: frozenset[Partition]
    # Not of the group: the application named them, and there is no member. Commits go under no generation.
    is_manual: bool = False


@dataclass(frozen=True, slots=True)
class Revoke:
    """Let these go until then."""

    revocation: int
    partitions: frozenset[Partition]
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Revoked:
    """The member has released these partitions."""

    partitions: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class Lost:
    """The member has lost these partitions, which may be another member's already."""

    partitions: frozenset[Partition]
    reason: str


@dataclass(frozen=True, slots=True)
class LeftGroup:
    """The member left because it was told to (see actions.Leave), and is in no group now."""


# ---------------------------------------------------------------------------------------------- outcomes


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of a commit, for each of its partitions."""

    request: int
    errors: Mapping[Partition, pb.ErrorCode.ValueType]


@dataclass(frozen=True, slots=True)
class CommittedFetched:
    """Committed offsets (-1 = none) with their metadata. An error stands for all of them."""

    request: int
    error: pb.ErrorCode.ValueType
    offsets: Mapping[Partition, "Stored"]


@dataclass(frozen=True, slots=True)
class Stored:
    """A committed offset as it was fetched."""

    offset: int
    metadata: str
    leader_epoch: int = -1
    error: pb.ErrorCode.ValueType = pb.NONE


@dataclass(frozen=True, slots=True)
class OffsetsListed:
    """The start and the end of partitions; of those that are missing it is not known, for this reason."""

    request: int
    bounds: Mapping[Partition, "Bounds"]
    problem: str = ""
    # The engine refuses this client; asking again does not help.
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """From the first record on, before the end that readers may see."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Read:
    """The result of a fetch, which is over. `next_offset` is the position to read from; no batch = nothing yet."""

    delivery_epoch: int
    batches: Sequence[Batch]
    next_offset: int
    bounds: Bounds


class FetchError(Enum):
    """Why nothing could be read."""

    OUT_OF_RANGE = "out of range"
    UNKNOWN_TOPIC = "unknown topic"
    # A topic was deleted and made again under the same name.
    OTHER_TOPIC = "other topic"
    DENIED = "denied"
    UNREACHABLE = "unreachable"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """A fetch brought nothing; it is over."""

    delivery_epoch: int
    fetch_error: FetchError
    # One, without the partition's name.
    message: str
    # Of CORRUPT: what lies there, where the engine has its bytes.
    unreadable: "Unreadable | None" = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A batch that no reader can read; `batch` is one record, whose value is its bytes."""

    batch: Batch
    next_offset: int
    # For the dead letter.
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLetterWritten:
    """A dead letter is in its topic, durably; or not, for this reason."""

    dead_letter: int
    problem: str = ""


# ---------------------------------------------------------------------------------------------- from the application


@dataclass(frozen=True, slots=True)
class Attached:
    """An application is there. The shell sees to it that there is one at a time."""

    session: int
    commits_itself: bool = False
    reads_itself: bool = False
    takes_many: bool = True


@dataclass(frozen=True, slots=True)
class Detached:
    """The application detached: `clean`, or because it or its connection crashed."""

    session: int
    clean: bool


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The application has handled an event."""

    event_id: int


@dataclass(frozen=True, slots=True)
class Credit:
    """The application takes this many more records."""

    records: int


@dataclass(frozen=True, slots=True)
class Judged:
    """Its verdicts."""

    judgements: Sequence["Judgement"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """On the records from `first` to `last`, inclusive; RETRY and DEAD_LETTER are about one."""

    delivery_epoch: int
    partition: Partition
    first: int
    last: int
    verdict: Verdict
    retry_after_ms: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Reported:
    """The positions of an application that reads by itself."""

    positions: Sequence["ReportedPosition"]


@dataclass(frozen=True, slots=True)
class ReportedPosition:
    """The first record that is not done, and its timestamp."""

    partition: Partition
    tenure: int
    position: int
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """Commit these, which are verdicts on all before them; None = everything as far as verdicts go."""

    request: int
    offsets: Mapping[Partition, "RequestedOffset"] | None
    # 0 = whatever there is now.
    tenure: int = 0


@dataclass(frozen=True, slots=True)
class RequestedOffset:
    """As the application gave it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class SeekRequested:
    """Read on from there; -1 = the end, -2 = the start."""

    request: int
    offsets: Mapping[Partition, int]


@dataclass(frozen=True, slots=True)
class PauseRequested:
    """Hand out nothing of these."""

    request: int
    partitions: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    """Go on with these."""

    request: int
    partitions: frozenset[Partition]


# ---------------------------------------------------------------------------------------------- from those who run it


@dataclass(frozen=True, slots=True)
class Configure:
    """Other settings; what is in hand stays under the old ones."""

    config: DeliveryConfig


@dataclass(frozen=True, slots=True)
class Drain:
    """Hand out nothing more; commit what has verdicts; say Drained when nothing is in hand, or at the deadline."""

    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Undrain:
    """Go on."""


@dataclass(frozen=True, slots=True)
class ResetOffsets:
    """Commit these as the owner, in this generation, and read on from there: Answered."""

    request: int
    generation: int
    offsets: Mapping[Partition, int]


@dataclass(frozen=True, slots=True)
class Tick:
    """The time that was asked for has come."""


FromMember = Assigned | Revoke | Revoked | Lost | LeftGroup
Outcome = Committed | CommittedFetched | OffsetsListed | Read | ReadFailed | DeadLetterWritten
FromApplication = Attached | Detached | Acknowledged | Credit | Judged | Reported
ApplicationRequest = CommitRequested | SeekRequested | PauseRequested | ResumeRequested
Order = Configure | Drain | Undrain | ResetOffsets
Event = FromMember | Outcome | FromApplication | ApplicationRequest | Order | Tick
