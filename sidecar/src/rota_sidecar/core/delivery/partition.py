"""The state of one partition in one tenure, and the fetch session that reads it."""

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
    """The terms of a fetch session; under other terms the session is replaced."""

    rules: Rules
    # Whether commits carry marks: not where somebody else commits, and not where somebody else reads.
    has_metadata: bool


class FetchSession:
    """A ledger with its fetch, its dead letters and their retries. `number` is the delivery epoch."""

    def __init__(self, number: int, ledger: Ledger, terms: Terms, *, begins: bool) -> None:
        self.number = number
        self.ledger = ledger
        self.terms = terms
        # Nobody knows yet that the partition begins here: that is committed at once.
        self.begins = begins
        # Why nothing can be read on from where it stands: a sentence, or nothing.
        self.expired = ""
        # Why what lies at the position cannot be read by any reader: a sentence, or nothing.
        self.unreadable = ""
        # The same as it lies there, to become a dead letter when all before it is done.
        self.poison: Unreadable | None = None
        # The fetch under way, by its offset.
        self.fetches_at: int | None = None
        self.fetch_attempts = 0
        self.fetch_retry_ms = 0
        self.dead_letter_topic = ""
        # Being written; and whether others could not be, and go again.
        self.dead_letters: set[int] = set()
        self.dead_letters_wait = False
        self.dead_letter_attempts = 0
        self.dead_letter_retry_ms = 0
        # As they were counted last.
        self.in_flight = 0
        self.lanes = 0

    @property
    def is_idle(self) -> bool:
        """Nothing of it is waited for."""
        return not self.in_flight and not self.dead_letters and not self.dead_letters_wait

    @property
    def is_replaceable(self) -> bool:
        """
        No record of it is in flight, and no dead letter is being written.

        A dead letter that could not be written is not waited for: its record is not committed, and the next owner, or
        the next book, writes it.
        """
        return not self.in_flight and not self.dead_letters


class Edge(Enum):
    """The ends of a partition's log."""

    START = auto()
    END = auto()


@dataclass(slots=True)
class FetchingCommitted:
    """The committed offset is being fetched, or will be."""

    request: int | None = None
    attempt: int = 0
    retry_ms: int = 0


@dataclass(slots=True)
class ResolvingOffset:
    """An end of the log is being looked up, to start there."""

    edge: Edge
    # Whose wish that is; else it is committed at once.
    seek_request: int | None = None
    request: int | None = None
    attempt: int = 0
    retry_ms: int = 0


@dataclass(slots=True)
class Running:
    """The partition is read, dispatched and committed."""

    fetch_session: FetchSession


@dataclass(slots=True)
class Stopped:
    """The position is unknown until a seek or a reset; verdicts before it are committed."""

    message: str
    fetch_session: FetchSession | None = None


@dataclass(slots=True)
class Revoking:
    """The partition is being revoked: nothing more is dispatched, records in flight are finished and committed."""

    fetch_session: FetchSession | None
    # What the application was told, until it has acknowledged that.
    event_id: int | None = None
    # Time is up: what is in hand is not waited for.
    timed_out: bool = False
    # The last commit was refused, and will be again.
    refused: bool = False
    # The member was told; nothing is committed any more.
    released: bool = False

    @property
    def is_finished(self) -> bool:
        """Nobody in front of the coordinator is waited for."""
        return self.timed_out or (
            self.event_id is None and (self.fetch_session is None or self.fetch_session.is_replaceable)
        )


State = FetchingCommitted | ResolvingOffset | Running | Stopped | Revoking


class Subject(Enum):
    """The kinds of problems of a partition; each is reported once as long as it lasts."""

    BEGINNING = auto()
    READING = auto()
    RECORD = auto()
    DEAD_LETTERS = auto()
    COMMITTING = auto()


class PartitionProblem(NamedTuple):
    """A problem of a partition, as long as it lasts; with `kind` the application is notified too."""

    message: str
    kind: ErrorKind | None = None


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """A commit that was requested; without offset: as far as verdicts go."""

    request: int
    offset: RequestedOffset | None
    # Read on from there, once it is committed.
    seeks: bool = False


@dataclass(slots=True, eq=False)
class PartitionState:
    """A partition that the member has."""

    partition: Partition
    tenure: Tenure
    is_manual: bool
    # It is not known from before, though its topic is.
    appeared_later: bool
    state: State = field(default_factory=FetchingCommitted)
    # The event in which the application was told of it.
    assigned_event_id: int | None = None
    acknowledged: bool = False
    paused: bool = False
    # What is committed, exactly; None = nothing is, or nobody knows what.
    durable: CommitPoint | None = None
    # The same for people to see: what was known last.
    committed: int | None = None
    bounds: Bounds | None = None
    # What an application said that reads by itself: the first record that is not done, and when that one was written.
    reported: int | None = None
    reported_ms: int | None = None
    pending_commits: deque[PendingCommit] = field(default_factory=deque)
    commit_attempts: int = 0
    commit_retry_ms: int = 0
    problems: dict[Subject, PartitionProblem] = field(default_factory=dict)

    @property
    def fetch_session(self) -> FetchSession | None:
        """Where its records stand, once it is known where they begin."""
        match self.state:
            case Running(fetch_session) | Stopped(fetch_session=fetch_session) | Revoking(fetch_session):
                return fetch_session
            case FetchingCommitted() | ResolvingOffset():
                return None

    @property
    def running(self) -> FetchSession | None:
        """The same, while there may be more of it."""
        return self.state.fetch_session if isinstance(self.state, Running) else None
