"""State of the delivery core, and the steps that its modules share. Used inside this package only."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import NamedTuple

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery.config import CommitMode, DeliveryConfig
from rota_sidecar.core.delivery.errors import Error, message_of
from rota_sidecar.core.delivery.partition import (
    FetchSession,
    PartitionProblem,
    PartitionState,
    PendingCommit,
    ResolvingOffset,
    Subject,
    Terms,
)
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.member.partitions import Offset, Partition, Tenure

BACKOFF_MS = 100
BACKOFF_MAX_MS = 10_000


class Traits(NamedTuple):
    """Properties of an application; the defaults hold until the first one attaches."""

    commits_itself: bool = False
    reads_itself: bool = False
    takes_many: bool = True


class UnacknowledgedEvent(NamedTuple):
    """An event that the application has not acknowledged."""

    kind: do.Kind
    partitions: frozenset[Partition]
    since_ms: int


@dataclass(slots=True)
class Application:
    """The attached application."""

    session: int
    # Records that it still takes.
    credit: int = 0
    unacknowledged: dict[int, UnacknowledgedEvent] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InGroup:
    """The member is one, or was never told to leave."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """The member was told to leave the group."""

    reason: str


@dataclass(frozen=True, slots=True)
class OutOfGroup:
    """The member has left the group."""

    reason: str


Membership = InGroup | Leaving | OutOfGroup


@dataclass(slots=True)
class Revocation:
    """Partitions that are to be let go together."""

    partitions: set[Partition]
    # From then on nobody is waited for but the coordinator; and then not even that one.
    application_deadline_ms: int
    commit_deadline_ms: int


class Sent(NamedTuple):
    """Of a commit under way: one partition."""

    partition_state: PartitionState
    fetch_session: FetchSession | None
    offset: Offset
    pending_commits: tuple[PendingCommit, ...]


class Commit(NamedTuple):
    """The commit under way. There is one at a time, so that none overtakes another."""

    request: int
    sent: Mapping[Partition, Sent]


@dataclass(slots=True)
class Draining:
    """Nothing is handed out any more."""

    deadline_ms: int
    is_reported: bool = False


@dataclass(slots=True)
class PendingRequest:
    """A request, and the part of its answer that is known."""

    waits_for: set[Partition]
    errors: dict[Partition, Error] = field(default_factory=dict)
    offsets: dict[Partition, int] = field(default_factory=dict)
    # With a seek: the records of its partitions in books up to this one are void.
    delivery_epoch: int = 0


class Timer(Enum):
    """The timers; all but the first few belong to one partition."""

    COMMIT = auto()
    PROGRESS = auto()
    RATE = auto()
    DRAIN = auto()
    # For one revocation.
    REVOKE = auto()
    BEGIN = auto()
    READ = auto()
    RETRY = auto()
    DEAD_LETTERS = auto()
    COMMIT_AGAIN = auto()


TimerKey = tuple[Timer, Partition | int | None]


class Core:
    """Deliveries. `now_ms` is the time of the event that is looked at, `actions` what it has led to so far."""

    def __init__(self, config: DeliveryConfig) -> None:
        self.config = config
        self.now_ms = 0
        self.actions: list[do.Action] = []
        self.membership: Membership = InGroup()
        self.draining: Draining | None = None
        self.application: Application | None = None
        self.traits = Traits()
        self.terms = self._terms()
        # Of the last assignment.
        self.tenure: Tenure | None = None
        self.partition_states: dict[Partition, PartitionState] = {}
        self.fetch_sessions: dict[int, PartitionState] = {}
        # What a hung application held when its partitions went.
        self.retired: dict[int, tuple[Partition, Ledger]] = {}
        self.revocations: dict[int, Revocation] = {}
        self.pending_requests: dict[int, PendingRequest] = {}
        # Dead letters under way, each with its book and offset.
        self.dead_letters: dict[int, tuple[int, int]] = {}
        self.under_way: Commit | None = None
        # To be committed as soon as the one under way is answered, and at the end of the interval.
        self.due: dict[Partition, None] = {}
        self.changed: dict[Partition, None] = {}
        # Who may have something to hand out, in turn; and who wants to do that alone.
        self.dispatch_queue: dict[Partition, PartitionState] = {}
        self.isolated_partitions: dict[Partition, PartitionState] = {}
        # Since when records wait, and nobody is there for whom.
        self.unattended_since_ms: int | None = None
        self.in_flight = 0
        self.lanes = 0
        self.tokens = 0.0
        self.tokens_ms = 0
        # All partitions ever held, and what was known to be committed.
        self.known_partitions: dict[str, set[Partition]] = {}
        self.last_committed: dict[Partition, int] = {}
        # Places that something happened to, and has to be done something about.
        self.touched: dict[Partition, PartitionState] = {}
        self.timers: dict[TimerKey, int] = {}
        self._numbers = 0
        self._problems: dict[str, list[Partition]] = {}
        self._errors: dict[PartitionProblem, list[Partition]] = {}

    def number(self) -> int:
        """One that nothing had before."""
        self._numbers += 1
        return self._numbers

    # What things are kept under

    def set_terms(self) -> None:
        """
        Recompute the terms after new settings or another application; fetch sessions under other terms are replaced
        when idle.
        """
        self.terms = self._terms()
        self.touch_all()

    def _terms(self) -> Terms:
        config, traits = self.config, self.traits
        rules = replace(
            config.rules,
            takes_many=config.rules.takes_many and traits.takes_many,
            has_dead_letters=bool(config.dead_letter_topic),
        )
        return Terms(rules, self.commits_by_itself and not traits.reads_itself)

    @property
    def commits_by_itself(self) -> bool:
        """Return true if verdicts are committed without a request."""
        mode = self.config.commit_mode
        return mode in (CommitMode.PERIODIC, CommitMode.SYNC) and not self.traits.commits_itself

    def is_committing(self, partition_state: PartitionState) -> bool:
        """Return true if a commit of this partition is under way."""
        sent = None if self.under_way is None else self.under_way.sent.get(partition_state.partition)
        return sent is not None and sent.partition_state is partition_state

    # Places and books

    def touch(self, partition_state: PartitionState) -> None:
        """Look at it before the step ends."""
        self.touched[partition_state.partition] = partition_state

    def touch_all(self) -> None:
        """Look at all of them."""
        self.touched.update(self.partition_states)

    def add_fetch_session(self, partition_state: PartitionState, fetch_session: FetchSession) -> None:
        """Its records stand there from now on."""
        self.fetch_sessions[fetch_session.number] = partition_state

    def drop_fetch_session(self, partition_state: PartitionState) -> None:
        """Nothing that is said of these records matters any more."""
        fetch_session = partition_state.fetch_session
        if fetch_session is None:
            return
        del self.fetch_sessions[fetch_session.number]
        self.stop_fetching(fetch_session)
        self.in_flight -= fetch_session.in_flight
        self.lanes -= fetch_session.lanes
        self.dequeue(partition_state)
        for timer in (Timer.READ, Timer.RETRY, Timer.DEAD_LETTERS):
            self.timers.pop((timer, partition_state.partition), None)

    def stop_fetching(self, fetch_session: FetchSession) -> None:
        """Cancel the fetch under way, if any."""
        if fetch_session.fetches_at is not None:
            fetch_session.fetches_at = None
            self.actions.append(do.StopFetching(fetch_session.number))

    def dequeue(self, partition_state: PartitionState) -> None:
        """Remove the partition from the dispatch queues."""
        self.dispatch_queue.pop(partition_state.partition, None)
        self.isolated_partitions.pop(partition_state.partition, None)

    def recount(self, fetch_session: FetchSession) -> None:
        """After whatever changed what is in hand."""
        in_flight, lanes = fetch_session.ledger.in_flight, fetch_session.ledger.lanes_busy
        self.in_flight += in_flight - fetch_session.in_flight
        self.lanes += lanes - fetch_session.lanes
        fetch_session.in_flight, fetch_session.lanes = in_flight, lanes

    def answer_lookup(self, partition_state: PartitionState, error: Error = pb.NONE) -> None:
        """Answer the seek that waits for an offset lookup, with an error if given."""
        if isinstance(partition_state.state, ResolvingOffset):
            self.answer(partition_state.state.seek_request, partition_state.partition, error)

    def remove(self, partition_state: PartitionState) -> None:
        """Remove a partition that the member has no longer."""
        partition, fetch_session = partition_state.partition, partition_state.fetch_session
        if fetch_session is not None and fetch_session.in_flight and not isinstance(self.membership, InGroup):
            self.retired[fetch_session.number] = partition, fetch_session.ledger
        self.drop_fetch_session(partition_state)
        for pending_commit in partition_state.pending_commits:
            self.answer(pending_commit.request, partition, pb.ILLEGAL_GENERATION)
        self.answer_lookup(partition_state, pb.ILLEGAL_GENERATION)
        for which in (self.due, self.changed, self.touched):
            which.pop(partition, None)
        for timer in (Timer.BEGIN, Timer.COMMIT_AGAIN):
            self.timers.pop((timer, partition), None)
        del self.partition_states[partition]

    # Time

    def retry_at(self, timer: Timer, partition: Partition, attempt: int) -> int:
        """When to try again, after a longer and longer time."""
        at_ms = self.now_ms + min(BACKOFF_MS << min(attempt, 16), BACKOFF_MAX_MS)
        self.timers[timer, partition] = at_ms
        return at_ms

    def watch_progress(self) -> None:
        """From now on something may take too long; it does so after the processing timeout at the earliest."""
        due_ms = self.now_ms + self.config.processing_timeout_ms
        self.timers.setdefault((Timer.PROGRESS, None), due_ms)

    # Answers

    def answer(
        self, request: int | None, partition: Partition, error: Error = pb.NONE, offset: int | None = None
    ) -> None:
        """Note the outcome for this partition; None: there is no request."""
        if request is None or (pending := self.pending_requests.get(request)) is None:
            return
        pending.waits_for.discard(partition)
        pending.errors[partition] = error
        if offset is not None:
            pending.offsets[partition] = offset
        self.answer_if_known(request)

    def answer_if_known(self, request: int) -> None:
        """Answer once, when it is known of all partitions."""
        pending = self.pending_requests[request]
        if not pending.waits_for:
            del self.pending_requests[request]
            message = message_of(pending.errors)
            self.actions.append(
                do.Answer(
                    request,
                    pb.NONE,
                    pending.errors,
                    pending.offsets,
                    message=message,
                    delivery_epoch=pending.delivery_epoch,
                )
            )

    # Problems

    def report_problem(
        self,
        partition_state: PartitionState,
        subject: Subject,
        message: str,
        kind: do.ErrorKind | None = None,
    ) -> None:
        """Say it, unless that was the last thing said; with a kind the application is told as well."""
        problem = PartitionProblem(message, kind)
        if partition_state.problems.get(subject) == problem:
            return
        partition_state.problems[subject] = problem
        self._problems.setdefault(message, []).append(partition_state.partition)
        if partition_state.acknowledged:
            self._report_error(partition_state, problem)

    def report_errors(self, partition_state: PartitionState) -> None:
        """Tell the application, which has just acknowledged the partition, of all errors that it still has."""
        for problem in partition_state.problems.values():
            self._report_error(partition_state, problem)

    def _report_error(self, partition_state: PartitionState, problem: PartitionProblem) -> None:
        if problem.kind is not None:
            self._errors.setdefault(problem, []).append(partition_state.partition)

    def report_problem_of_all(self, message: str) -> None:
        """Say what is wrong with everything."""
        self._problems[message] = sorted(self.partition_states)

    def emit_problems(self) -> None:
        """One sentence for all partitions that it is true of."""
        for (message, kind), partitions in self._errors.items():
            assert kind is not None
            self.actions.append(do.PartitionError(self.number(), kind, partitions, message))
        self._errors.clear()
        for message, partitions in self._problems.items():
            self.actions.append(do.Problem(message, partitions))
        self._problems.clear()
