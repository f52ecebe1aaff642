"""
State of the delivery core, and the steps that its modules share. Used inside this package only.

`delivery` calls one module for each event. The modules change partitions, and `touch` those that need another look;
at the end of the step `delivery` processes the touched partitions and emits the collected problems.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import NamedTuple

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
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
    """Properties of an application; the defaults apply until the first application attaches."""

    # It commits by requests, so the sidecar commits no verdicts by itself.
    commits_itself: bool = False
    # It fetches records itself, and reports its positions.
    reads_itself: bool = False
    # It accepts several records of a partition at a time.
    takes_many: bool = True
    # It is notified of the commits that the sidecar makes by itself.
    takes_commits: bool = False


class UnacknowledgedEvent(NamedTuple):
    """Assignment event that the application has not acknowledged."""

    kind: do.Kind
    partitions: frozenset[Partition]
    since_ms: int


@dataclass(slots=True)
class Application:
    """The attached application. Invariant: `credit` >= 0."""

    session: int
    # Number of records that it accepts at present.
    credit: int = 0
    unacknowledged: dict[int, UnacknowledgedEvent] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InGroup:
    """The member is in the group, or the core did not make it leave."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """Leave was sent to the member, which has not left the group yet."""

    reason: str
    # True if the application has ended during a drain; False: it hangs.
    is_drained: bool = False


@dataclass(frozen=True, slots=True)
class OutOfGroup:
    """The member has left the group, and rejoins when the application is ready, or when the drain has ended."""

    reason: str
    is_drained: bool = False


Membership = InGroup | Leaving | OutOfGroup


@dataclass(slots=True)
class Revocation:
    """Partitions that are revoked together. Invariant: `application_deadline_ms` <= `commit_deadline_ms`."""

    partitions: set[Partition]
    # From this time on the core waits for commits only, and from the second one on for nothing.
    application_deadline_ms: int
    commit_deadline_ms: int


class Sent(NamedTuple):
    """Part of a commit under way: one partition, and the requests that it answers."""

    partition_state: PartitionState
    fetch_session: FetchSession | None
    offset: Offset
    pending_commits: tuple[PendingCommit, ...]


class Commit(NamedTuple):
    """The commit under way."""

    request: int
    sent: Mapping[Partition, Sent]


@dataclass(slots=True)
class Draining:
    """A drain under way: nothing is dispatched. `is_reported`: its Drained action was emitted."""

    deadline_ms: int
    leaves_group: bool = False
    is_reported: bool = False
    # True if the application has detached in good order since the drain began.
    said_goodbye: bool = False
    # True if a successor waits for the member's instance.
    has_successor: bool = False


class AwaitingSuccessor(NamedTuple):
    """The application of a pod that ends is served, until this time in ms at the latest; then `drain` begins."""

    until_ms: int
    drain: on.Drain


@dataclass(slots=True)
class PendingRequest:
    """A request under way. It is answered when `waits_for` is empty."""

    waits_for: set[Partition]
    errors: dict[Partition, Error] = field(default_factory=dict)
    offsets: dict[Partition, int] = field(default_factory=dict)
    # Of a seek: records of its partitions with this delivery epoch or an earlier one are void.
    delivery_epoch: int = 0


class Timer(Enum):
    """Kinds of timers. Those above REVOKE exist once, REVOKE once for each revocation, the others once for each partition."""

    COMMIT = auto()
    PROGRESS = auto()
    RATE = auto()
    DRAIN = auto()
    REVOKE = auto()
    BEGIN = auto()
    READ = auto()
    RETRY = auto()
    DEAD_LETTERS = auto()
    COMMIT_AGAIN = auto()


TimerKey = tuple[Timer, Partition | int | None]


class Core:
    """
    State of all deliveries. `now_ms` is the time of the current event, `actions` the actions that it has caused so far.

    Invariant: `in_flight` and `lanes` are the sums over all fetch sessions, and one commit at most is under way. Not both
    `draining` and `awaiting_successor` are set.
    """

    def __init__(self, config: DeliveryConfig) -> None:
        self.config = config
        self.now_ms = 0
        self.actions: list[do.Action] = []
        self.membership: Membership = InGroup()
        self.draining: Draining | None = None
        self.awaiting_successor: AwaitingSuccessor | None = None
        self.application: Application | None = None
        self.traits = Traits()
        self.terms = self._terms()
        # Tenure of the last assignment; None before the first one and after all partitions were removed.
        self.tenure: Tenure | None = None
        self.partition_states: dict[Partition, PartitionState] = {}
        self.fetch_sessions: dict[int, PartitionState] = {}
        # By delivery epoch: ledgers of removed partitions of which a hung application still holds records.
        self.retired: dict[int, tuple[Partition, Ledger]] = {}
        self.revocations: dict[int, Revocation] = {}
        self.pending_requests: dict[int, PendingRequest] = {}
        # Dead letters being written, by number: delivery epoch and offset.
        self.dead_letters: dict[int, tuple[int, int]] = {}
        self.under_way: Commit | None = None
        # Partitions to commit after the commit under way, and at the end of the interval. Dicts keep the order.
        self.due: dict[Partition, None] = {}
        self.changed: dict[Partition, None] = {}
        # Partitions with records to dispatch, in round-robin order, and those with a record to dispatch in isolation.
        self.dispatch_queue: dict[Partition, PartitionState] = {}
        self.isolated_partitions: dict[Partition, PartitionState] = {}
        # Time since which records wait although no application is attached; None: they do not.
        self.unattended_since_ms: int | None = None
        self.in_flight = 0
        self.lanes = 0
        self.tokens = 0.0
        self.tokens_ms = 0
        # All partitions that this sidecar ever owned, by topic, and their last known committed offsets.
        self.known_partitions: dict[str, set[Partition]] = {}
        self.last_committed: dict[Partition, int] = {}
        # Partitions to process before the step ends.
        self.touched: dict[Partition, PartitionState] = {}
        self.timers: dict[TimerKey, int] = {}
        self._numbers = 0
        self._problems: dict[str, list[Partition]] = {}
        self._errors: dict[PartitionProblem, list[Partition]] = {}

    def number(self) -> int:
        """Return the next number for a request, an event or a delivery epoch; numbers rise by 1."""
        self._numbers += 1
        return self._numbers

    # Terms

    def set_terms(self) -> None:
        """
        Recompute the terms after a change of the settings or of the application.

        A fetch session under other terms is replaced once none of its records is in flight.
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
        """Return True if the sidecar commits verdicts without a request of the application."""
        mode = self.config.commit_mode
        return mode in (CommitMode.PERIODIC, CommitMode.SYNC) and not self.traits.commits_itself

    def is_committing(self, partition_state: PartitionState) -> bool:
        """Return True if a commit of this partition is under way."""
        sent = None if self.under_way is None else self.under_way.sent.get(partition_state.partition)
        return sent is not None and sent.partition_state is partition_state

    # Partitions and fetch sessions

    def touch(self, partition_state: PartitionState) -> None:
        """Process the partition before the step ends."""
        self.touched[partition_state.partition] = partition_state

    def touch_all(self) -> None:
        """Process all partitions before the step ends."""
        self.touched.update(self.partition_states)

    def add_fetch_session(self, partition_state: PartitionState, fetch_session: FetchSession) -> None:
        """Register a fetch session, so that fetches, verdicts and dead letters of its delivery epoch find it."""
        self.fetch_sessions[fetch_session.number] = partition_state

    def drop_fetch_session(self, partition_state: PartitionState) -> None:
        """Drop the partition's fetch session, if any; verdicts and fetches of its delivery epoch are ignored."""
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
        """Update the total numbers of records in flight and of busy lanes after a change of this session's ledger."""
        in_flight, lanes = fetch_session.ledger.in_flight, fetch_session.ledger.lanes_busy
        self.in_flight += in_flight - fetch_session.in_flight
        self.lanes += lanes - fetch_session.lanes
        fetch_session.in_flight, fetch_session.lanes = in_flight, lanes

    def answer_lookup(self, partition_state: PartitionState, error: Error = pb.NONE) -> None:
        """Answer the seek that waits for ListOffsets, if any."""
        if isinstance(partition_state.state, ResolvingOffset):
            self.answer(partition_state.state.seek_request, partition_state.partition, error)

    def remove(self, partition_state: PartitionState) -> None:
        """Remove a partition that the member no longer owns, and answer its pending requests."""
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
        """Set the timer for the next attempt, with exponential backoff; return its time in ms."""
        at_ms = self.now_ms + min(BACKOFF_MS << min(attempt, 16), BACKOFF_MAX_MS)
        self.timers[timer, partition] = at_ms
        return at_ms

    def watch_progress(self) -> None:
        """Check progress after the processing timeout, unless an earlier check is scheduled."""
        due_ms = self.now_ms + self.config.processing_timeout_ms
        self.timers.setdefault((Timer.PROGRESS, None), due_ms)

    # Answers

    def answer(
        self, request: int | None, partition: Partition, error: Error = pb.NONE, offset: int | None = None
    ) -> None:
        """Record the outcome of a request for one partition; ignored without a pending request."""
        if request is None or (pending := self.pending_requests.get(request)) is None:
            return
        pending.waits_for.discard(partition)
        pending.errors[partition] = error
        if offset is not None:
            pending.offsets[partition] = offset
        self.answer_if_known(request)

    def answer_if_known(self, request: int) -> None:
        """Answer the request once the outcome of all its partitions is known."""
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
        """Report a problem unless it is the present one of its subject; with a kind, to the application too."""
        problem = PartitionProblem(message, kind)
        if partition_state.problems.get(subject) == problem:
            return
        partition_state.problems[subject] = problem
        self._problems.setdefault(message, []).append(partition_state.partition)
        if partition_state.acknowledged:
            self._report_error(partition_state, problem)

    def report_errors(self, partition_state: PartitionState) -> None:
        """Report all present errors of a partition to the application, which has just acknowledged the partition."""
        for problem in partition_state.problems.values():
            self._report_error(partition_state, problem)

    def _report_error(self, partition_state: PartitionState, problem: PartitionProblem) -> None:
        if problem.kind is not None:
            self._errors.setdefault(problem, []).append(partition_state.partition)

    def report_problem_of_all(self, message: str) -> None:
        """Report a problem that concerns all partitions."""
        self._problems[message] = sorted(self.partition_states)

    def emit_problems(self) -> None:
        """Emit the problems of this step: one action for all partitions with the same message."""
        for (message, kind), partitions in self._errors.items():
            assert kind is not None
            self.actions.append(do.PartitionError(self.number(), kind, partitions, message))
        self._errors.clear()
        for message, partitions in self._problems.items():
            self.actions.append(do.Problem(message, partitions))
        self._problems.clear()
