"""
State of one partition in one tenure, and the fetch session that reads it.

State machine: FetchingCommitted -> (ResolvingOffset) -> Running -> (Stopped) -> Revoking. A new delivery epoch is a new
FetchSession.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from rota_sidecar.core.delivery.actions import ErrorKind
from rota_sidecar.core.delivery.events import Bounds, RequestedOffset, Unreadable
from rota_sidecar.core.ledger.commit_points import CommitPoint
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.ledger.rules import Rules
from rota_sidecar.core.member.partitions import Partition, Tenure


class Terms(NamedTuple):
    """Terms of a fetch session. Invariant: constant for its life; under other terms the session is replaced."""

    rules: Rules
    # True: commits carry metadata. False where the application commits or fetches by itself.
    has_metadata: bool


class FetchSession:
    """
    A ledger with its fetch and its dead letters. `number` is the delivery epoch.

    Invariant: at most one fetch is under way.
    """

    def __init__(self, number: int, ledger: Ledger, terms: Terms, *, begins: bool) -> None:
        self.number = number
        self.ledger = ledger
        self.terms = terms
        # True: the position does not come from a commit, and is committed as soon as possible.
        self.begins = begins
        # True after the first successful fetch: the position was in the log.
        self.has_read = False
        # Message why the position is no longer in the log; empty: it is.
        self.expired = ""
        # Message why the batch at the position cannot be decoded; empty: it can, or was not fetched.
        self.unreadable = ""
        # This batch, to be written as a dead letter when all records before it are done.
        self.poison: Unreadable | None = None
        # Offset of the fetch under way; None: no fetch is under way.
        self.fetches_at: int | None = None
        self.fetch_attempts = 0
        self.fetch_retry_ms = 0
        self.dead_letter_topic = ""
        # Offsets whose dead letters are being written, and True if the write of another one failed and is retried.
        self.dead_letters: set[int] = set()
        self.dead_letters_wait = False
        self.dead_letter_attempts = 0
        self.dead_letter_retry_ms = 0
        # The ledger's numbers at the last `recount`.
        self.in_flight = 0
        self.lanes = 0

    @property
    def is_idle(self) -> bool:
        """Return True if no record is in flight and no dead letter is being written or retried."""
        return not self.in_flight and not self.dead_letters and not self.dead_letters_wait

    @property
    def is_replaceable(self) -> bool:
        """
        Return True if no record is in flight and no dead letter is being written.

        A failed dead letter does not count: its record is not committed, so the next owner or session writes it.
        """
        return not self.in_flight and not self.dead_letters


class Edge(Enum):
    """Edge of a partition's log."""

    START = auto()
    END = auto()


@dataclass(slots=True)
class FetchingCommitted:
    """FetchCommitted is under way (`request`), or is sent at `retry_ms`."""

    request: int | None = None
    attempt: int = 0
    retry_ms: int = 0


@dataclass(slots=True)
class ResolvingOffset:
    """ListOffsets is under way (`request`), or is sent at `retry_ms`; the partition then starts at `edge`."""

    edge: Edge
    # The seek that waits for the offset; None: the settings chose the edge.
    seek_request: int | None = None
    request: int | None = None
    attempt: int = 0
    retry_ms: int = 0


@dataclass(slots=True)
class Running:
    """The partition is fetched, dispatched and committed."""

    fetch_session: FetchSession


@dataclass(slots=True)
class Stopped:
    """The partition has no position until a seek or a reset; verdicts of its former session are committed."""

    message: str
    fetch_session: FetchSession | None = None


@dataclass(slots=True)
class Revoking:
    """The partition is being revoked: nothing is dispatched, records in flight are completed and committed."""

    fetch_session: FetchSession | None
    # REVOKING event that the application has not acknowledged.
    event_id: int | None = None
    # True after the application's deadline: records in flight are not waited for.
    timed_out: bool = False
    # True: the coordinator refused the last commit for good.
    refused: bool = False
    # True: ReleasePartitions was sent, so nothing is committed any more.
    released: bool = False

    @property
    def is_finished(self) -> bool:
        """Return True if the revocation waits for commits only."""
        return self.timed_out or (
            self.event_id is None and (self.fetch_session is None or self.fetch_session.is_replaceable)
        )


State = FetchingCommitted | ResolvingOffset | Running | Stopped | Revoking


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


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """A commit request; without an offset, up to the first record without a final verdict."""

    request: int
    offset: RequestedOffset | None
    # True: read from the offset once it is committed.
    seeks: bool = False


@dataclass(slots=True, eq=False)
class PartitionState:
    """
    An owned partition.

    Invariant: `durable`, if known, is what the coordinator stores; records are dispatched only while `acknowledged`.
    """

    partition: Partition
    tenure: Tenure
    is_manual: bool
    # True: this sidecar owned other partitions of the topic before, and never this one.
    appeared_later: bool
    state: State = field(default_factory=FetchingCommitted)
    # ASSIGNED event that announced the partition to the application; None: not announced.
    assigned_event_id: int | None = None
    acknowledged: bool = False
    paused: bool = False
    # Committed offset and metadata; None: there is none, or it is unknown after a failed commit.
    durable: CommitPoint | None = None
    # Last known committed offset, for metrics and reports.
    committed: int | None = None
    bounds: Bounds | None = None
    # Of an application that fetches records itself: offset of its first record that is not done.
    reported: int | None = None
    # The last timestamp that it reported. It counts while the position is that of the record.
    reported_time: RecordTime | None = None
    pending_commits: deque[PendingCommit] = field(default_factory=deque)
    commit_attempts: int = 0
    commit_retry_ms: int = 0
    problems: dict[Subject, PartitionProblem] = field(default_factory=dict)

    @property
    def fetch_session(self) -> FetchSession | None:
        """Return the fetch session; None while the position is unknown."""
        match self.state:
            case Running(fetch_session) | Stopped(fetch_session=fetch_session) | Revoking(fetch_session):
                return fetch_session
            case FetchingCommitted() | ResolvingOffset():
                return None

    @property
    def running(self) -> FetchSession | None:
        """Return the fetch session in the state Running; else None."""
        return self.state.fetch_session if isinstance(self.state, Running) else None
