"""
The state machine of an owned partition in one tenure, in the order in which a record passes through it.

    process -> fetched -> dispatch -> judge -> commit_need -> next_commit -> commit_succeeded

`delivery` calls one method for each event, and `process` for each partition that an event has touched. `dispatch` decides
when records are dispatched, `commits` when offsets are committed, `assignments` when the application knows of a partition.
States: FetchingCommitted -> (ResolvingOffset) -> Running -> (Stopped) -> Revoking; `owned_partition` has what leads to Running.
"""

from collections.abc import Iterable, Sequence

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import CommitMode
from rota_sidecar.core.delivery.context import Timer
from rota_sidecar.core.delivery.owned_partition import OwnedPartition
from rota_sidecar.core.delivery.partition_progress import FetchSession, Sent
from rota_sidecar.core.delivery.states import (
    FENCED,
    TRANSIENT,
    CommitNeed,
    Error,
    PendingCommit,
    RecordTime,
    Revoking,
    Running,
    Subject,
    name_of,
)
from rota_sidecar.core.ledger.batches import Ordering
from rota_sidecar.core.ledger.commit_points import CommitPoint, parse_commit_metadata
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.member.partitions import Offset

# Errors of fetches that the application is notified of. OUT_OF_RANGE is reported when the partition stops.
KINDS = {
    on.FetchError.UNKNOWN_TOPIC: do.ErrorKind.UNKNOWN_TOPIC,
    on.FetchError.DENIED: do.ErrorKind.TOPIC_AUTHORIZATION,
    on.FetchError.CORRUPT: do.ErrorKind.CORRUPT_RECORD,
}


class PartitionState(OwnedPartition):
    """
    An owned partition.

    Invariants: a fetch is under way only while Running; records are dispatched only while Running and acknowledged; the point
    to commit never passes a record without a final verdict; at most one commit is under way.
    """

    # ------------------------------------------------------------------------------------------ reading

    def process(self, share_bytes: int) -> bool:
        """Do what an event has made due; return True if a lookup is to be sent. `share_bytes` is the prefetch limit."""
        session = self._session
        if session is None:
            return self._is_lookup_due
        ledger, prefetch = session.ledger, session.prefetch
        # Something is to be done about failures, or was at the last look.
        has_failures, self._has_failures = self._has_failures or ledger.has_failures, ledger.has_failures
        if has_failures:
            # Also during a revocation: a record that failed is done when its dead letter is durable.
            session.dead_letters.write_due()
        if isinstance(self._state, Running):
            if session.terms != self._context.conditions.terms and self.is_replaceable:
                self._renew(session)
            elif prefetch.expired and self._is_idle and not ledger.waiting:
                self._expire_if_settled(session)
            else:
                self._fetch_if_room(session, share_bytes)
                if has_failures:
                    self._wake_for_retries(ledger)
                    self._report_or_clear(Subject.RECORD, ledger.stopped)
        return self._session is None and self._is_lookup_due

    def _expire_if_settled(self, session: FetchSession) -> None:
        if not session.prefetch.has_read or self.has_settled:
            self._expire(session)

    def _fetch_if_room(self, session: FetchSession, share_bytes: int) -> None:
        """Fetch, unless a fetch is under way or more than half of the prefetch limit is buffered."""
        context, ledger, prefetch = self._context, session.ledger, session.prefetch
        if prefetch.poison is not None:
            self._fail_poison(session, prefetch.poison)
        if prefetch.may_begin(context.now_ms) and context.conditions.may_read:
            room_bytes = share_bytes - ledger.buffered_bytes
            if room_bytes > share_bytes // 2:
                prefetch.begin(ledger.position)
                context.emit(do.Fetch(session.number, self._partition, ledger.position, room_bytes))

    def fetched(self, event: on.Read | on.ReadFailed) -> None:
        """Handle the outcome of the fetch under way: append its records, or react to its error."""
        session = self._session
        if session is None or (offset := session.prefetch.end()) is None:
            return
        self._context.touch(self._partition)
        if isinstance(event, on.Read):
            self._read(session, event)
        elif offset == session.ledger.position:
            self._fail_fetch(session, event)
        # Else the position has moved otherwise: the error concerns records that were skipped.

    def _read(self, session: FetchSession, event: on.Read) -> None:
        session.prefetch.succeed()
        self._bounds = event.bounds
        if self._problems:
            self._problems.pop(Subject.READING, None)
        # A commit beyond these records has settled them meanwhile.
        if event.next_offset > session.ledger.position:
            session.ledger.fetched(event.batches, event.next_offset)

    def _fail_fetch(self, session: FetchSession, event: on.ReadFailed) -> None:
        """Retry, expire the position, or hold an unreadable batch for its dead letter."""
        match event.fetch_error:
            case on.FetchError.CORRUPT if (
                event.unreadable is not None and session.terms.rules.has_dead_letters
            ):
                session.prefetch.hold(event.unreadable)
                topic, reason = self._context.conditions.config.dead_letter_topic, event.unreadable.reason
                message = f"{reason}: its bytes are written to dead-letter topic {topic}, and reading continues after it"
                self._report(Subject.READING, message)
            case on.FetchError.OUT_OF_RANGE:
                session.prefetch.expire(event.message)
            case on.FetchError.OTHER_TOPIC:
                self._begin_in_other_topic(event.message)
            case _:
                self._retry_fetch(session, event)

    def _retry_fetch(self, session: FetchSession, event: on.ReadFailed) -> None:
        message = f"records cannot be fetched, retrying: {event.message}"
        self._report(Subject.READING, message, KINDS.get(event.fetch_error))
        at_ms = self._context.retry_at(Timer.READ, self._partition, session.prefetch.attempts)
        session.prefetch.retry(at_ms, event.message if event.fetch_error is on.FetchError.CORRUPT else "")

    @property
    def _running(self) -> FetchSession | None:
        """Return the fetch session in the state Running; else None."""
        return self._session if isinstance(self._state, Running) else None

    @property
    def _is_idle(self) -> bool:
        """Return True if no record is in flight and no dead letter is being written or retried."""
        return not self._in_flight and (self._session is None or not self._session.dead_letters.are_open)

    # ------------------------------------------------------------------------------------------ dispatch

    @property
    def in_flight(self) -> int:
        """Return the number of records that the application holds."""
        return self._in_flight

    @property
    def has_records(self) -> bool:
        """Return True if records wait for their dispatch."""
        session = self._running
        return session is not None and session.ledger.has_waiting

    @property
    def wants_alone(self) -> bool:
        """Return True if a record is to be dispatched in isolation, or is in flight in isolation now."""
        # Only a record that has failed goes out in isolation.
        session = self._running if self._has_failures else None
        return session is not None and session.ledger.wants_alone

    @property
    def takes_part(self) -> bool:
        """Return True if records may be dispatched; each change of this touches the partition."""
        session = self._running
        if session is None or self._paused or not self._acknowledged:
            return False
        return session.terms == self._context.conditions.terms

    @property
    def awaits_commit(self) -> bool:
        """Return True if dispatch waits until the commit point is committed."""
        return self._session is not None and self._session.ledger.awaits_commit

    @property
    def has_lane(self) -> bool:
        """Return True if it has busy lanes, of which it may dispatch further records."""
        return self._running is not None and self._lanes > 0

    @property
    def is_in_order(self) -> bool:
        """Return True if its records share one lane."""
        return self._session is not None and self._session.terms.rules.ordering is Ordering.PARTITION

    def dispatch(self, records_max: int, lanes_max: int, *, alone: bool) -> int:
        """Dispatch waiting records; return their number. `alone`: no record of another partition is in flight."""
        session = self._running
        assert session is not None
        context, ledger = self._context, session.ledger
        before = ledger.holds_back
        records = 0
        for dispatch in ledger.take(records_max, lanes_max, context.now_ms, alone=alone):
            records += dispatch.count
            context.emit(do.Deliver(session.number, self._partition, self._tenure, dispatch))
        self._recount(ledger)
        if (records and not session.prefetch.is_under_way) or ledger.holds_back != before:
            # The buffer may have room for a fetch, or a commit may be due before the next dispatch.
            context.touch(self._partition)
        elif self._has_failures:
            self._wake_for_retries(ledger)
        return records

    def _wake_for_retries(self, ledger: Ledger) -> None:
        wake_ms = ledger.wake_ms
        if wake_ms is not None and wake_ms > self._context.now_ms:
            self._context.set_timer(Timer.RETRY, self._partition, wake_ms)
        else:
            self._context.stop_timer(Timer.RETRY, self._partition)

    # ------------------------------------------------------------------------------------------ verdicts

    def judge(self, judgement: on.Judgement) -> None:
        """Apply a verdict on records of the present session; an invalid one is answered with Refuse."""
        session, context = self._session, self._context
        assert session is not None
        outcome = session.ledger.judge(
            judgement.first,
            judgement.last,
            judgement.verdict,
            context.now_ms,
            retry_after_ms=judgement.retry_after_ms,
            reason=judgement.reason,
        )
        if outcome.refusal:
            context.emit(do.Refuse(session.number, self._partition, judgement.first, outcome.refusal))
            return
        context.emit(do.Settled(self._partition, judgement.verdict.value, outcome.settled))
        self._recount(session.ledger)
        context.touch(self._partition)

    def report_position(self, reported: on.ReportedPosition) -> None:
        """Apply a position that the application reports; one below an earlier report is ignored, because a seek moves back."""
        time = RecordTime(reported.position, reported.timestamp_ms)
        if reported.timestamp_only:
            self._reported_time = time
        elif self._reported is None or reported.position >= self._reported:
            self._reported, self._reported_time = reported.position, time
            if self._session is not None:
                self._session.ledger.settle_below(reported.position, self._context.now_ms)
                self._recount(self._session.ledger)
            self._context.touch(self._partition)

    # ------------------------------------------------------------------------------------------ dead letters

    def dead_letter_written(self, event: on.DeadLetterWritten) -> None:
        """Handle the outcome of a write: complete the record, or schedule another attempt."""
        session = self._session
        if session is None or not session.dead_letters.is_writing(event.dead_letter):
            return
        self._context.touch(self._partition)
        session.dead_letters.end(event.dead_letter, event.problem)
        if event.problem:
            message = (
                f"dead letters cannot be written to {session.dead_letters.topic}, retrying: {event.problem}"
            )
            self._report(Subject.DEAD_LETTERS, message)
        else:
            self._recount(session.ledger)
            self._problems.pop(Subject.DEAD_LETTERS, None)

    def _fail_poison(self, session: FetchSession, poison: on.Unreadable) -> None:
        """Fail an unreadable batch permanently, once all records before it are done."""
        if session.ledger.first_unresolved is None:
            session.prefetch.pass_poison()
            session.ledger.fail_unreadable(
                poison.batch, poison.next_offset, poison.reason, self._context.now_ms
            )
            self._context.touch(self._partition)

    # ------------------------------------------------------------------------------------------ commits

    def _own_point(self) -> CommitPoint | None:
        """Return the point that the sidecar commits by itself; None: it commits nothing for this partition."""
        session, conditions, state = self._session, self._context.conditions, self._state
        if session is None or not conditions.commits_by_itself:
            return None
        if isinstance(state, Revoking):
            if state.refused or state.released:
                return None
            if self._is_finished:
                return session.ledger.close()
        is_quiet = not conditions.is_attached or conditions.is_draining
        return session.ledger.close() if is_quiet and self.is_replaceable else session.ledger.point

    def commit_need(self) -> CommitNeed:
        """Return when the next commit is to be sent, and confirm a point that is committed already."""
        commits = self._commits
        if not commits.requests:
            point = self._own_point()
            if point is None or commits.sent is not None:
                return CommitNeed.WAITS
            if commits.is_durable(point):
                self._confirm(point)
                return CommitNeed.NOTHING
            if not self._is_urgent(point):
                return CommitNeed.LATER
        return CommitNeed.NOW if self.may_commit else CommitNeed.WAITS

    def _is_urgent(self, point: CommitPoint) -> bool:
        session, conditions, durable = self._session, self._context.conditions, self._commits.durable
        assert session is not None
        if isinstance(self._state, Revoking):
            return self._is_finished
        uncommitted = 0 if durable is None else point.offset - durable.offset
        return (
            self._begins
            or (session.prefetch.has_read and bool(session.prefetch.expired))
            or conditions.config.commit_mode is CommitMode.SYNC
            or conditions.is_draining
            or (conditions.is_attached and session.ledger.awaits_commit)
            or uncommitted >= conditions.config.rules.in_flight_max
        )

    def _confirm(self, point: CommitPoint) -> None:
        """Confirm the point to a ledger that waits for its commit: an earlier ledger has committed the same point."""
        session = self._running
        if session is not None:
            self._begins = False
            if session.ledger.awaits_commit and point == session.ledger.point:
                session.ledger.committed(point)

    @property
    def has_settled(self) -> bool:
        """Return True if nothing is left to commit, and no commit is under way."""
        point, commits = self._own_point(), self._commits
        is_done = point is None or commits.is_durable(point)
        return is_done and not commits.requests and commits.sent is None

    @property
    def may_commit(self) -> bool:
        """Return True unless the wait after a failed commit goes on."""
        return self._commits.may_begin(self._context.now_ms)

    def end_commit_backoff(self) -> bool:
        """Wait no longer before the next commit; return True if a failed commit was waited for."""
        has_failed = self._commits.attempts > 0
        self._commits.end_backoff()
        self._context.stop_timer(Timer.COMMIT_AGAIN, self._partition)
        return has_failed

    def next_commit(self) -> Offset | None:
        """Begin a commit, and return its offset; None: there is nothing to commit, and waiting requests are answered."""
        requests, point = self._commits.take_requests(), self._own_point()
        if not requests:
            is_new = point is not None and not self._commits.is_durable(point)
            return self._begin_commit(point, requests) if point is not None and is_new else None
        requested = requests[-1].offset
        if requested is not None:
            metadata = requested.metadata
            if not metadata and point is not None and point.offset == requested.offset:
                # Without it, the ledger would have to commit its metadata again.
                metadata = point.metadata
            named = CommitPoint(requested.offset, metadata)
            return self._begin_commit(named, requests, requested.leader_epoch)
        if self._session is None:
            self._answer(requests, pb.NONE)
            return None
        point = point or self._session.ledger.point
        if self._commits.is_durable(point):
            self._answer(requests, pb.NONE, point.offset)
            # The ledger may wait for this commit.
            self._context.touch(self._partition)
            return None
        return self._begin_commit(point, requests)

    def _begin_commit(
        self, point: CommitPoint, requests: Sequence[PendingCommit], leader_epoch: int = -1
    ) -> Offset:
        offset = Offset(self._tenure.number, point.offset, leader_epoch, point.metadata)
        self._commits.begin(Sent(offset, self._session, requests))
        return offset

    @property
    def answers_requests(self) -> bool:
        """Return True if the commit under way answers requests of the application or of Fleet."""
        return self._commits.sent is not None and bool(self._commits.sent.requests)

    def _answer(self, requests: Iterable[PendingCommit], error: Error, offset: int | None = None) -> None:
        for pending in requests:
            self._context.answer(pending.request, self._partition, error, offset)

    def commit_succeeded(self, *, is_held: bool) -> None:
        """Handle the success of the commit under way; `is_held`: the partition was not removed meanwhile."""
        commits = self._commits
        (offset, session, requests) = commits.end()
        self._context.note_committed(self._partition)
        self._answer(requests, pb.NONE, offset.offset)
        if not is_held:
            return
        durable = CommitPoint(offset.offset, offset.metadata)
        commits.set_durable(durable)
        self._problems.pop(Subject.COMMITTING, None)
        self.end_commit_backoff()
        if requests and requests[-1].seeks:
            # The application's other commits were made before the reset of the offsets.
            self._answer(commits.void_requests(), pb.ILLEGAL_GENERATION)
            self.seek(offset.offset)
        elif session is None:
            self._begin_at_committed_by_owner(offset.offset)
        elif session is self._session:
            self._begins = False
            session.ledger.committed(durable)

    def commit_failed(self, error: Error, *, is_held: bool) -> None:
        """Handle the failure of the commit under way: try again later, or report the error."""
        commits, sent = self._commits, self._commits.end()
        if not is_held:
            self._answer(sent.requests, pb.ILLEGAL_GENERATION if error in TRANSIENT else error)
            return
        # The coordinator may have stored the offset all the same.
        commits.forget_durable()
        commits.retry(self._context.retry_at(Timer.COMMIT_AGAIN, self._partition, commits.attempts))
        if error in TRANSIENT or (error in FENCED and not self._is_manual) or _is_shortened(sent, error):
            commits.return_requests(sent.requests)
            return
        self._answer(sent.requests, error)
        message = (
            f"offsets of group {self._context.conditions.config.group_id} cannot be committed: the coordinator answers {name_of(error)}; "
            "the sidecar keeps retrying, correct the cause"
        )
        self._report(Subject.COMMITTING, message)
        if isinstance(self._state, Revoking):
            self._state = self._state._replace(refused=True)

    # ------------------------------------------------------------------------------------------ revocation

    @property
    def is_replaceable(self) -> bool:
        """
        Return True if no record is in flight and no dead letter is being written.

        A failed dead letter does not count: its record is not committed, so the next owner or session writes it.
        """
        return not self._in_flight and (self._session is None or not self._session.dead_letters.are_under_way)

    @property
    def _is_finished(self) -> bool:
        """Return True if the revocation waits for commits only."""
        state = self._state
        return isinstance(state, Revoking) and (
            state.timed_out or (state.event_id is None and self.is_replaceable)
        )

    @property
    def is_releasable(self) -> bool:
        """Return True if the revocation waits for nothing."""
        return self._is_finished and self.has_settled

    @property
    def is_revoking(self) -> bool:
        """Return True during a revocation."""
        return isinstance(self._state, Revoking)

    def revoke(self) -> None:
        """Begin a revocation: dispatch and fetch nothing more."""
        for timer in (Timer.BEGIN, Timer.READ, Timer.RETRY):
            self._context.stop_timer(timer, self._partition)
        self._stop_fetching()
        self._answer_lookup(pb.ILLEGAL_GENERATION)
        self._state = Revoking()

    def time_out(self) -> None:
        """Wait for the application no longer."""
        self._revoking(timed_out=True)
        self._context.touch(self._partition)

    def release(self, *, released: bool) -> None:
        """End a revocation; `released` is False if a later one, with more time, is under way."""
        self._revoking(released=released)

    def _revoking(self, **changes: bool) -> None:
        assert isinstance(self._state, Revoking)
        self._state = self._state._replace(**changes)

    def remove(self) -> None:
        """End the tenure: answer all requests; what arrives later is ignored."""
        self._drop_session()
        self._answer(self._commits.requests, pb.ILLEGAL_GENERATION)
        self._answer_lookup(pb.ILLEGAL_GENERATION)
        for timer in (Timer.BEGIN, Timer.COMMIT_AGAIN):
            self._context.stop_timer(timer, self._partition)


def _is_shortened(sent: Sent, error: Error) -> bool:
    """Shorten the metadata of the next commit if the coordinator refused its length; return True if that is possible."""
    if error != pb.OFFSET_METADATA_TOO_LARGE or sent.session is None:
        return False
    if not parse_commit_metadata(sent.offset.metadata).completed_ahead:
        return False
    sent.session.ledger.omit_completed_ahead()
    return True
