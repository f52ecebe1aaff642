"""
An owned partition: what the application knows and asks of it, where its reading starts, and its fetch sessions. The base of
`partition`.

The start is the committed offset; without one, or outside of the log, the position of the settings. A partition that this sidecar
never owned, of a topic of which it owned others, was created later and starts at its first record, if the sidecar commits by
itself. A seek, a reset and a change of the terms begin another fetch session, under a new delivery epoch.
"""

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import Reset
from rota_sidecar.core.delivery.context import Context, Timer
from rota_sidecar.core.delivery.partition_progress import CommitPosition, FetchSession, open_session
from rota_sidecar.core.delivery.states import (
    TRANSIENT,
    Edge,
    Error,
    FetchingCommitted,
    PartitionProblem,
    PartitionView,
    PendingCommit,
    RecordTime,
    ResolvingOffset,
    Revoking,
    Running,
    State,
    Stopped,
    Subject,
    name_of,
)
from rota_sidecar.core.ledger.commit_points import CommitMetadata, CommitPoint, parse_commit_metadata
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.member.partitions import Partition, Tenure

EDGES = {Reset.EARLIEST: Edge.START, Reset.LATEST: Edge.END}
REMEDY = "seek, or reset the offsets of the group"
KINDS = {
    pb.GROUP_AUTHORIZATION_FAILED: do.ErrorKind.GROUP_AUTHORIZATION,
    pb.TOPIC_AUTHORIZATION_FAILED: do.ErrorKind.TOPIC_AUTHORIZATION,
}
NO_COMMIT = PartitionProblem("nothing is committed", do.ErrorKind.NO_OFFSET)
COMMIT_VANISHED = PartitionProblem("the committed offset has vanished", do.ErrorKind.NO_OFFSET)
NOT_THERE = "it does not exist: create the topic, or remove it from the group's subscription"


class OwnedPartition:
    """
    A partition in one tenure, with its state, its position and its fetch session.

    Invariants: there is a session while Running, and none while FetchingCommitted or ResolvingOffset; the context knows the
    number of the session as this partition's, and of no former one; its part of the context's totals is what its ledger says.
    """

    def __init__(
        self, context: Context, partition: Partition, tenure: Tenure, *, is_manual: bool, appeared_later: bool
    ) -> None:
        self._context = context
        self._partition = partition
        self._tenure = tenure
        self._is_manual = is_manual
        # True: this sidecar owned other partitions of the topic before, and never this one.
        self._appeared_later = appeared_later
        self._state: State = FetchingCommitted()
        self._session: FetchSession | None = None
        # True: the position of the session does not come from a commit, and is committed as soon as possible.
        self._begins = False
        # The ledger's numbers, as the context has them.
        self._in_flight = self._lanes = 0
        # True if a record has failed, or had at the last look: retries, dead letters and isolated records are to be looked after.
        self._has_failures = False
        self._commits = CommitPosition()
        # ASSIGNED event that announced the partition to the application; None: not announced.
        self._assigned_event_id: int | None = None
        self._acknowledged = self._paused = False
        # Of an application that fetches records itself: offset of its first record that is not done.
        self._reported: int | None = None
        # The last timestamp that it reported. It counts while the position is that of the record.
        self._reported_time: RecordTime | None = None
        self._bounds: on.Bounds | None = None
        self._problems: dict[Subject, PartitionProblem] = {}

    @property
    def partition(self) -> Partition:
        """Return its topic and number."""
        return self._partition

    @property
    def tenure(self) -> Tenure:
        """Return the tenure in which it is owned."""
        return self._tenure

    @property
    def is_manual(self) -> bool:
        """Return True if the application assigned it, without a member."""
        return self._is_manual

    @property
    def state(self) -> State:
        """Return its state, an immutable value."""
        return self._state

    @property
    def session(self) -> FetchSession | None:
        """Return the fetch session; None while the position is unknown."""
        return self._session

    # ------------------------------------------------------------------------------------------ application

    @property
    def is_announced(self) -> bool:
        """Return True if the application was notified of the partition."""
        return self._assigned_event_id is not None

    def announce(self, event_id: int | None) -> None:
        """Note the event by which the application was notified of the assignment, or of the revocation."""
        if isinstance(self._state, Revoking):
            self._state = self._state._replace(event_id=event_id)
        else:
            self._assigned_event_id = event_id

    def acknowledge(self, event_id: int) -> None:
        """Handle the application's acknowledgement of an event about this partition."""
        if self._assigned_event_id == event_id:
            self._acknowledged = True
            for problem in self._problems.values():
                self._context.report_to_application(self._partition, problem)
        if isinstance(self._state, Revoking) and self._state.event_id == event_id:
            self._state = self._state._replace(event_id=None)
            # The application drops the records that it did not start, and gives no verdict on them.
            self._take_back(clean=True)
        self._context.touch(self._partition)

    @property
    def paused(self) -> bool:
        """Return True if the application paused the partition."""
        return self._paused

    def pause(self, *, paused: bool) -> None:
        """Dispatch nothing, or dispatch again."""
        self._paused = paused
        self._context.touch(self._partition)

    def detach(self, *, clean: bool) -> None:
        """Take the application's records back; they are delivered again."""
        self._assigned_event_id, self._acknowledged = None, False
        if isinstance(self._state, Revoking):
            self._state = self._state._replace(event_id=None)
        self._take_back(clean=clean)
        if not self._context.conditions.commits_by_itself:
            self._begin_at_committed()

    def _take_back(self, *, clean: bool) -> None:
        if self._session is not None:
            self._session.ledger.application_gone(self._context.now_ms, clean=clean)
            self._recount(self._session.ledger)

    def _report_or_clear(self, subject: Subject, message: str) -> None:
        """Report the message, or clear the problem if there is none."""
        if message:
            self._report(subject, message)
        else:
            self._problems.pop(subject, None)

    def _report(self, subject: Subject, message: str, kind: do.ErrorKind | None = None) -> None:
        """Report a problem unless it is the present one of its subject; with a kind, to the application too."""
        problem = PartitionProblem(message, kind)
        if self._problems.get(subject) == problem:
            return
        self._problems[subject] = problem
        self._context.report(self._partition, problem)
        if self._acknowledged:
            self._context.report_to_application(self._partition, problem)

    # ------------------------------------------------------------------------------------------ requests

    def accepts_commit(self, tenure: int) -> bool:
        """Return True if a request under this tenure may commit the partition; 0: any tenure."""
        if isinstance(self._state, Revoking) and self._state.released:
            return False
        return tenure in (0, self._tenure.number)

    def request_commit(self, pending: PendingCommit) -> None:
        """Commit on a request; the offset of an application is also the final verdict on all records before it."""
        session = self._session
        if pending.offset is not None and not pending.seeks and session is not None:
            before = session.ledger.position
            session.ledger.settle_below(pending.offset.offset, self._context.now_ms)
            self._recount(session.ledger)
            if isinstance(self._state, Stopped) and session.ledger.position != before:
                # The application has committed a position at which reading continues.
                session.prefetch.resume()
                self._problems.pop(Subject.BEGINNING, None)
                self._state = Running()
        self._commits.request(pending)
        self._context.touch(self._partition)

    def refuses_seek(self, *, is_edge: bool) -> bool:
        """Return True if a seek comes too late. Until its release an offset is committed: the next owner starts there."""
        # The offsets of the edges are not known.
        return isinstance(self._state, Revoking) and (self._state.released or is_edge)

    # ------------------------------------------------------------------------------------------ views

    @property
    def in_flight_since_ms(self) -> int | None:
        """Return the time in ms since which the application works on its oldest record; None: no record is in flight."""
        return None if self._session is None else self._session.ledger.in_flight_since_ms

    @property
    def position(self) -> int | None:
        """
        Return the application's position: the offset of the first record without a verdict; None: it is unknown.

        Dispatched records may still be on their way to the application when it receives this position.
        """
        if self._session is None:
            return None
        unresolved, dispatched = self._session.ledger.first_unresolved, self._session.ledger.dispatch_position
        return dispatched if unresolved is None else min(unresolved[1], dispatched)

    def view(self) -> PartitionView:
        """Return its state for metrics and reports."""
        ledger = None if self._session is None else self._session.ledger
        position, time = None if ledger is None else ledger.dispatch_position, self._reported_time
        return PartitionView(
            tenure=self._tenure,
            position=position,
            committed=self._commits.offset,
            bounds=self._bounds,
            in_flight=0 if ledger is None else ledger.in_flight,
            waiting=0 if ledger is None else ledger.waiting,
            first_unresolved=None if ledger is None else ledger.first_unresolved,
            # A position that has moved since, by a commit for example, makes the timestamp void.
            reported_ms=time.timestamp_ms if time is not None and time.offset == position else None,
            stopped=self._stopped,
            # Without a position nothing is fetched, and without a fetch nothing is committed.
            problem=next((self._problems[each].message for each in Subject if each in self._problems), ""),
        )

    @property
    def _stopped(self) -> str:
        if isinstance(self._state, Stopped):
            return self._state.message
        session = self._session
        return "" if session is None else session.ledger.stopped or session.prefetch.unreadable

    # ------------------------------------------------------------------------------------------ lookups

    @property
    def _is_lookup_due(self) -> bool:
        """Return True if FetchCommitted or ListOffsets, by its state, is to be sent now."""
        state = self._state
        return (
            isinstance(state, FetchingCommitted | ResolvingOffset)
            and state.request is None
            and self._context.now_ms >= state.retry_ms
        )

    def begin_lookup(self, request: int) -> None:
        """Record that the lookup was sent with this number."""
        assert isinstance(self._state, FetchingCommitted | ResolvingOffset)
        self._state = self._state._replace(request=request)

    def _retry_lookup(self, state: FetchingCommitted | ResolvingOffset) -> None:
        retry_ms = self._context.retry_at(Timer.BEGIN, self._partition, state.attempt)
        self._state = state._replace(request=None, retry_ms=retry_ms, attempt=state.attempt + 1)

    @property
    def _is_being_decided(self) -> bool:
        """Return True if a commit is under way or pending: it decides the position, and what was looked up is older."""
        return bool(self._commits.requests) or self._commits.sent is not None

    def looked_up(self, event: on.CommittedFetched | on.OffsetsListed) -> None:
        """Handle the outcome of FetchCommitted or ListOffsets: start reading there, or schedule another lookup."""
        state = self._state
        if isinstance(event, on.CommittedFetched):
            if isinstance(state, FetchingCommitted) and state.request == event.request:
                self._committed_fetched(state, event)
        elif isinstance(state, ResolvingOffset) and state.request == event.request:
            self._offsets_listed(state, event)

    def _committed_fetched(self, state: FetchingCommitted, event: on.CommittedFetched) -> None:
        stored = event.offsets.get(self._partition)
        error = event.error or (pb.UNKNOWN_SERVER_ERROR if stored is None else stored.error)
        if error != pb.NONE or stored is None:
            self._report_failed_fetch(error)
            self._retry_lookup(state)
        elif self._is_being_decided:
            self._retry_lookup(state)
        else:
            self._begin(stored)

    def _report_failed_fetch(self, error: Error) -> None:
        if error not in TRANSIENT:
            message = (
                f"committed offsets of group {self._context.conditions.config.group_id} cannot be fetched: the coordinator answers "
                f"{name_of(error)}; the sidecar keeps retrying, correct the cause"
            )
            self._report(Subject.BEGINNING, message, KINDS.get(error))

    def _begin(self, stored: on.Stored) -> None:
        context = self._context
        self._problems.pop(Subject.BEGINNING, None)
        if stored.offset >= 0:
            self._commits.set_durable(CommitPoint(stored.offset, stored.metadata))
            context.note_committed(self._partition)
            self._open(stored.offset, parse_commit_metadata(stored.metadata))
        elif context.has_committed(self._partition):
            self._begin_by_policy(context.conditions.config.on_offset_expired, COMMIT_VANISHED)
        elif self._appeared_later:
            self.begin_at_edge(Edge.START)
        else:
            self._begin_by_policy(context.conditions.config.initial_offset, NO_COMMIT)

    def _begin_by_policy(self, reset: Reset, why: PartitionProblem, *, keeps_session: bool = False) -> None:
        """Start at the position of the settings, or stop; verdicts of a session that is kept are still committed."""
        if reset is not Reset.NONE:
            self.begin_at_edge(EDGES[reset])
            return
        message = f"group {self._context.conditions.config.group_id} has no position to read from: {why.message}; {REMEDY}"
        self._report(Subject.BEGINNING, message, why.kind)
        if not keeps_session:
            self._drop_session()
        self._state = Stopped(message)

    def begin_at_edge(self, edge: Edge, seek_request: int | None = None) -> None:
        """Start at an edge of the log once its offset is known; records in flight are void."""
        self._drop_session()
        self._answer_lookup()
        self._state = ResolvingOffset(edge, seek_request)
        self._context.touch(self._partition)

    def _offsets_listed(self, state: ResolvingOffset, event: on.OffsetsListed) -> None:
        bounds = event.bounds.get(self._partition)
        if bounds is None:
            message = f"the start and end offsets cannot be listed: {event.problem or NOT_THERE}"
            self._report(Subject.BEGINNING, message, _kind_of(event))
            self._retry_lookup(state)
        elif state.seek_request is None and self._is_being_decided:
            self._retry_lookup(state)
        else:
            self._bounds = bounds
            self._open(bounds.start if state.edge is Edge.START else bounds.end, begins=True)

    def _answer_lookup(self, error: Error = pb.NONE) -> None:
        """Answer the seek that waits for ListOffsets, if any."""
        if isinstance(self._state, ResolvingOffset):
            self._context.answer(self._state.seek_request, self._partition, error)

    # ------------------------------------------------------------------------------------------ fetch sessions

    def _open(self, offset: int, metadata: CommitMetadata | None = None, *, begins: bool = False) -> None:
        """Read from `offset` under a new delivery epoch; records in flight are void."""
        context = self._context
        self._drop_session()
        self._answer_lookup()
        self._problems.pop(Subject.BEGINNING, None)
        terms = context.conditions.terms
        ledger = Ledger(offset, terms.rules, (metadata or CommitMetadata()) if terms.has_metadata else None)
        self._session = open_session(context, self._partition, ledger, terms)
        self._begins = begins
        if not isinstance(self._state, Revoking):
            self._state = Running()
        if self._reported is not None:
            ledger.settle_below(self._reported, context.now_ms)
        context.touch(self._partition)

    def _drop_session(self) -> None:
        """Drop the fetch session, if any; verdicts and fetches of its delivery epoch are ignored."""
        session = self._session
        if session is None:
            return
        self._context.release_number(session.number)
        self._stop_fetching()
        self._session = None
        self._count(0, 0)
        for timer in (Timer.READ, Timer.RETRY, Timer.DEAD_LETTERS):
            self._context.stop_timer(timer, self._partition)

    def _stop_fetching(self) -> None:
        """Cancel the fetch under way, if any."""
        if self._session is not None and self._session.prefetch.end() is not None:
            self._context.emit(do.StopFetching(self._session.number))

    def _recount(self, ledger: Ledger) -> None:
        """Update the totals after a change of the ledger's records in flight."""
        self._count(ledger.in_flight, ledger.lanes_busy)

    def _count(self, in_flight: int, lanes: int) -> None:
        self._context.add_to_totals(in_flight - self._in_flight, lanes - self._lanes)
        self._in_flight, self._lanes = in_flight, lanes

    def seek(self, offset: int) -> None:
        """Read from the offset of a seek; during a revocation, the next owner starts there."""
        self._reported = self._reported_time = None
        self._open(offset, begins=True)

    def _renew(self, session: FetchSession) -> None:
        """Replace the fetch session by one under the present terms, at the same position."""
        point = session.ledger.close()
        self._open(point.offset, parse_commit_metadata(point.metadata), begins=self._begins)

    def _begin_at_committed(self) -> None:
        """Start again at the committed offset: uncommitted verdicts of a detached application are void."""
        self._reported = self._reported_time = None
        if isinstance(self._state, Running):
            self._drop_session()
            self._state = FetchingCommitted()
            self._context.touch(self._partition)

    def _begin_at_committed_by_owner(self, offset: int) -> None:
        """Start at an offset that the application committed while the position was unknown."""
        match self._state:
            case FetchingCommitted() | ResolvingOffset(seek_request=None):
                pass
            case Stopped() if self._session is None:
                pass
            case _:
                return
        # Pending commits of higher offsets are verdicts too.
        later = [
            pending.offset.offset
            for pending in self._commits.requests
            if pending.offset is not None and not pending.seeks
        ]
        self._open(max([offset, *later]))

    # ------------------------------------------------------------------------------------------ expired offsets

    def _expire(self, session: FetchSession) -> None:
        """Leave a position that is no longer in the log. Called once no record is in flight."""
        context, prefetch = self._context, session.prefetch
        if prefetch.has_read and context.conditions.commits_by_itself and not prefetch.unreadable:
            # It was there before. A log that was restored from a backup ends below, and the group's offsets are those of the backup: they
            # are fetched under the member's generation, which such a group refuses. If they are outside of the log too, it is an expiry.
            self._begin_at_committed()
            return
        context.forget_committed(self._partition)
        if prefetch.unreadable:
            # An operator deleted records that could not be read. The rest is read, whatever the settings say.
            self.begin_at_edge(Edge.START)
            return
        reset = context.conditions.config.on_offset_expired
        if reset is not Reset.NONE:
            message = (
                f"group {context.conditions.config.group_id} continues at the {reset.value} record, as configured for expired offsets: "
                f"{prefetch.expired}"
            )
            self._report(Subject.READING, message)
        why = PartitionProblem(prefetch.expired, do.ErrorKind.OFFSET_OUT_OF_RANGE)
        self._begin_by_policy(reset, why, keeps_session=True)

    def _begin_in_other_topic(self, why: str) -> None:
        """Start by the settings in a topic that was deleted and created again; its offsets are not those of the former one."""
        self._commits.forget_durable()
        problem = PartitionProblem(why, do.ErrorKind.OFFSET_OUT_OF_RANGE)
        self._begin_by_policy(self._context.conditions.config.on_offset_expired, problem)

    def retry_stopped(self) -> None:
        """Try again to start a stopped partition, after a change of the settings."""
        if isinstance(self._state, Stopped):
            self._state = FetchingCommitted() if self._session is None else Running()
            self._context.touch(self._partition)


def _kind_of(event: on.OffsetsListed) -> do.ErrorKind | None:
    """Return the error kind of a partition without bounds; without a problem, the partition does not exist."""
    if event.refused:
        return do.ErrorKind.TOPIC_AUTHORIZATION
    return None if event.problem else do.ErrorKind.UNKNOWN_TOPIC
