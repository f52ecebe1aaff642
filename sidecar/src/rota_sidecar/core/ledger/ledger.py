"""
Partition in one delivery epoch: records fetched, in flight and done, and the point to commit.

Called by `rota_sidecar.core.delivery`: batches and verdicts come in, dispatches, dead letters and commit points go
out. Dropped when the partition is revoked, and with every seek.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import assert_never

from rota_sidecar.core.ledger import runs as completed_ahead
from rota_sidecar.core.ledger.batches import Batch, BatchSlice, Dispatch, DueDeadLetter, Judged, Ordering
from rota_sidecar.core.ledger.commit_points import (
    OPEN_METADATA,
    CommitMetadata,
    CommitPoint,
    DispatchGate,
    State,
    parse_commit_metadata,
)
from rota_sidecar.core.ledger.failures import NO_FAILURE, Disposition, FailureRecord, FailureRecords
from rota_sidecar.core.ledger.orders import InOrder, Lanes, Order
from rota_sidecar.core.ledger.record_buffer import RecordBuffer
from rota_sidecar.core.ledger.rules import Rules, Verdict
from rota_sidecar.core.ledger.runs import Run

# Limit of the application's reason within a message.
_REASON_CHARACTERS_MAX = 200


class Ledger:
    """
    Delivery state of one partition.

    Invariant: the commit point never passes a record without a final verdict. The caller passes in verdicts of this delivery
    epoch only.
    """

    def __init__(self, start: int, rules: Rules, commit_metadata: CommitMetadata | None) -> None:
        """Begin at `start`, whose commit had this metadata; None: the sidecar commits nothing here by itself."""
        self._start = start
        self._rules = rules
        # Completed offsets beyond the last clean commit. They are repeated in each commit until all offsets before them are done.
        self._completed_ahead = commit_metadata.completed_ahead if commit_metadata is not None else ""
        done_before = completed_ahead.read(self._completed_ahead)
        self._completed_ahead_end = done_before.end if done_before else start
        self._reports_completed_ahead = True
        self._buffer = RecordBuffer(start, done_before)
        self._order: Order
        self._is_in_order = rules.ordering is Ordering.PARTITION
        if self._is_in_order:
            self._order = InOrder(self._buffer, takes_many=rules.takes_many)
        else:
            self._order = Lanes(self._buffer, keyed=rules.ordering is Ordering.KEY)
        self._failures = FailureRecords(rules)
        self._gate = DispatchGate(has_metadata=commit_metadata is not None)
        # Failures of the record at the start, until it is fetched.
        self._inherited = _inherited(commit_metadata)
        # Index of the last record that was dispatched in isolation.
        self._alone: int | None = None
        # Number of RETRY verdicts so far, for Dispatch.turn.
        self._turn = 0
        if commit_metadata is not None and commit_metadata.state is not State.CLEAN:
            self._gate.begin_probe(0)

    # ------------------------------------------------------------------------------------------ reading

    @property
    def position(self) -> int:
        """Return the offset of the next fetch."""
        return self._buffer.position

    @property
    def buffered_bytes(self) -> int:
        """Return the size in bytes of the records that were fetched and never dispatched."""
        return self._buffer.buffered_bytes

    def fetched(self, batches: Sequence[Batch], next_offset: int) -> None:
        """Append batches and set the position to `next_offset`. Records before the position are ignored."""
        if self._rules.ordering is Ordering.KEY:
            for batch in batches:
                if batch.keys is None:
                    raise ValueError(
                        f"the batch at offset {batch.first} has no keys: read them, or order by partition"
                    )
        self._buffer.add(batches, next_offset)
        self._apply_inherited()

    def fail_unreadable(self, batch: Batch, next_offset: int, reason: str, now_ms: int) -> None:
        """
        Fail an unreadable batch permanently and set the position to `next_offset`.

        `batch` holds one record, which represents all offsets before `next_offset` that are not done; it is dropped if all are
        done. The caller ensures that all records fetched before it are done.
        """
        missing = self._buffer.not_done_before(batch.first, next_offset)
        index = self._buffer.end
        self.fetched([replace(batch, first=missing)] if missing < next_offset else [], next_offset)
        if index < self._buffer.end and index not in self._failures.exhausted:
            self._order.pick(self._buffer.end, 1, 1, now_ms)
            self._order.leave(index, self._buffer.end, now_ms)
            self._failures.reject(index, reason)
        self._gate.withdraw()

    def _apply_inherited(self) -> None:
        """Apply inherited failures once the record at the start is fetched; drop them if the log no longer has that record."""
        inherited, self._inherited = self._inherited, None
        if inherited is None or self._buffer.position == self._start:
            self._inherited = inherited
        elif self._buffer.undone and self._buffer.offset(0) == self._start:
            # It was dispatched before, in another tenure.
            self._order.pick(1, 1, 1, 0)
            self._order.leave(0, 1, 0)
            self._failures.inherit(0, inherited)
            if 0 not in self._failures.exhausted:
                self._order.again(0)

    # ------------------------------------------------------------------------------------------ dispatch

    @property
    def dispatch_position(self) -> int:
        """Return the next offset that is dispatched for the first time."""
        return self._buffer.offset(self._order.fresh)

    @property
    def waiting(self) -> int:
        """Return the number of records that were fetched and are not in flight, including retries."""
        return self._buffer.undone - self._order.in_flight - len(self._failures.exhausted)

    @property
    def has_waiting(self) -> bool:
        """Return True if records wait for their dispatch, which nothing stops."""
        # Mostly there are some that were never dispatched, or none at all.
        if not self._failures:
            return self._order.fresh < self._buffer.end or self.waiting > 0
        return self.waiting > 0 and not self.stopped

    @property
    def in_flight(self) -> int:
        """Return the number of records that the application holds."""
        return self._order.in_flight

    @property
    def lanes_busy(self) -> int:
        """Return the number of records that the application may be working on at the same time."""
        return self._order.lanes_busy

    @property
    def has_failures(self) -> bool:
        """Return True if a record has failed that is not done: it waits for a retry, its dead letter, or an operator."""
        return bool(self._failures)

    @property
    def holds_back(self) -> tuple[bool, bool]:
        """Return what holds records back: `awaits_commit`, `wants_alone`."""
        return self.awaits_commit, self.wants_alone

    @property
    def wants_alone(self) -> bool:
        """
        Return True if a record is to be dispatched in isolation, or is in flight in isolation now.

        The caller then dispatches nothing of other partitions, and calls `take` with `alone` once nothing is in
        flight; for one ledger at a time, until this is false.
        """
        if self._alone is None and not self._failures:
            return False
        return self._is_alone or (not self.stopped and self._isolated_record() is not None)

    @property
    def _is_alone(self) -> bool:
        return self._alone is not None and self._order.missing(self._alone, self._alone + 1) > self._alone

    def _isolated_record(self) -> int | None:
        isolated_records = self._failures.isolated_records
        return self._order.isolated_record(isolated_records, self._before()) if isolated_records else None

    def _before(self) -> int:
        """Return the index before which records may be dispatched."""
        low = self._buffer.low
        before = min(self._buffer.end, low + self._rules.in_flight_max)
        dispatch_limit = self._gate.dispatch_limit(low)
        if dispatch_limit is not None:
            before = min(before, dispatch_limit)
        if self._is_in_order and self._failures:
            before = min(before, self._failures.first_waiting(before))
        return before

    def take(self, records_max: int, lanes_max: int, now_ms: int, *, alone: bool) -> Sequence[Dispatch]:
        """
        Return the records to dispatch now.

        `lanes_max`: number of lanes that may become busy. `alone`: no record of another partition is in flight, and the caller
        dispatches none.
        """
        if records_max < 1 or self._is_alone:
            return ()
        if self._failures:
            if self.stopped:
                return ()
            for index in self._failures.wake(now_ms):
                self._order.again(index)
            isolated_record = self._isolated_record()
            if isolated_record is not None:
                return self._take_isolated(isolated_record, now_ms, is_free=alone and lanes_max > 0)
        before = self._before()
        if not self._order.is_ready(before, lanes_max) or not self._may_go(State.ONE):
            return ()
        self._alone = None
        return self._dispatches(self._order.pick(before, records_max, lanes_max, now_ms))

    def _take_isolated(self, index: int, now_ms: int, *, is_free: bool) -> Sequence[Dispatch]:
        if not is_free or self._order.in_flight:
            # A commit announced that no other record is in flight.
            self._gate.withdraw()
            return ()
        if not self._may_go(State.ALONE):
            return ()
        self._order.pick_isolated(index, now_ms)
        self._alone = index
        return self._dispatches([Run(index, index + 1)])

    def _may_go(self, state: State) -> bool:
        if self._gate.is_granted:
            return True
        self._gate.request(self._buffer.low, state)
        return self._gate.is_granted_at(self.point)

    def _dispatches(self, runs: Sequence[Run]) -> Sequence[Dispatch]:
        if runs and not self._failures:
            slices = [batch_slice for run in runs for batch_slice in self._buffer.slices(run.first, run.end)]
            return (Dispatch(1, slices, self._turn),)
        found: list[tuple[int, list[BatchSlice]]] = []
        for run in runs:
            for deliveries, first, end in self._deliveries(run):
                if not found or found[-1][0] != deliveries:
                    found.append((deliveries, []))
                found[-1][1].extend(self._buffer.slices(first, end))
        return tuple(Dispatch(deliveries, slices, self._turn) for deliveries, slices in found)

    def _deliveries(self, run: Run) -> Iterator[tuple[int, int, int]]:
        """Yield (delivery count, first index, end index) for consecutive records with the same delivery count."""
        first = run.first
        for index in self._failures.within(run.first, run.end):
            if first < index:
                yield 1, first, index
            yield self._failures.dispatched(index, alone=index == self._alone), index, index + 1
            first = index + 1
        if first < run.end:
            yield 1, first, run.end

    @property
    def wake_ms(self) -> int | None:
        """Return when the next retry is due, in milliseconds; it may lie in the past until `take` is called."""
        return self._failures.wake_ms

    @property
    def in_flight_since_ms(self) -> int | None:
        """Return since when the oldest record has been worked on, in milliseconds; None: no record is in flight."""
        return self._order.in_flight_since_ms

    # ------------------------------------------------------------------------------------------ verdicts

    def judge(
        self,
        first: int,
        last: int,
        verdict: Verdict,
        now_ms: int,
        *,
        retry_after_ms: int | None = None,
        reason: str = "",
    ) -> Judged:
        """Apply the application's verdict to the records from `first` to `last`, inclusive."""
        index, end = self._buffer.index(first), self._buffer.index(last + 1)
        refusal = self._wrong(first, last, verdict) or self._not_in_flight(first, index, end)
        if refusal and verdict is Verdict.SKIP and first == last and self._stops(index, first):
            self._finish(index, end)
            return Judged(1)
        if refusal:
            return Judged(0, refusal)
        self._order.leave(index, end, now_ms)
        match verdict:
            case Verdict.ACK | Verdict.SKIP:
                self._finish(index, end)
            case Verdict.RETRY:
                # Records behind it are delivered again even if it fails permanently: the application has dropped them.
                self._order.call_back(index)
                self._turn += 1
                self._failures.retry(index, now_ms, retry_after_ms, reason)
            case Verdict.DEAD_LETTER:
                self._failures.fail_permanently(index, reason)
            case _:
                assert_never(verdict)
        self._gate.withdraw()
        return Judged(end - index)

    def _stops(self, index: int, offset: int) -> bool:
        return (
            self._failures.get(index).disposition is Disposition.STOP and self._buffer.offset(index) == offset
        )

    def _wrong(self, first: int, last: int, verdict: Verdict) -> str:
        if last < first:
            return f"invalid verdict on offsets {first} to {last}: the last offset is below the first"
        if first != last and verdict in (Verdict.RETRY, Verdict.DEAD_LETTER):
            return f"invalid verdict {verdict.name} on offsets {first} to {last}: give it on one record at a time"
        if last >= self._buffer.position:
            return f"offset {last} was never delivered: the fetch position is {self._buffer.position}"
        return ""

    def _not_in_flight(self, offset: int, first: int, end: int) -> str:
        """Return why not all of these records are in flight; empty: they are."""
        if offset < self._buffer.floor:
            return f"offset {offset} is already done: give one verdict for each delivery"
        if first == end:
            return f"there is no record at offset {offset}: give verdicts on delivered records"
        missing = self._order.missing(first, end)
        return "" if missing == end else self._not_in_flight_reason(missing)

    def _not_in_flight_reason(self, index: int) -> str:
        offset = self._buffer.offset(index)
        if index in self._failures.exhausted:
            return f"offset {offset} already has a verdict: give one verdict for each delivery"
        if self._buffer.is_done(index):
            return f"offset {offset} is already done: give one verdict for each delivery"
        if self._order.is_fresh(index):
            return f"offset {offset} was never delivered: give verdicts on delivered records"
        return f"offset {offset} will be delivered again: give the verdict on that delivery"

    def _finish(self, first: int, end: int) -> None:
        self._order.finish(first, end)
        self._failures.forget(first, end)
        self._buffer.finish(first, end)

    def settle_below(self, offset: int, now_ms: int) -> None:
        """Mark all records before the offset as done; those that were not fetched are skipped."""
        index = self._buffer.index(offset)
        if index > self._buffer.low:
            self._order.pass_over(index, now_ms)
            self._failures.forget(self._buffer.low, index)
            for run in self._buffer.undone_before(index):
                self._buffer.finish(run.first, run.end)
        self._buffer.skip_to(offset)
        self._apply_inherited()

    def application_gone(self, now_ms: int, *, clean: bool) -> None:
        """Return all records in flight. Unless the detach was clean, count a crash for those that may have been started."""
        if not clean:
            self._count_crash(now_ms)
        self._order.return_all()
        self._gate.withdraw()

    def _count_crash(self, now_ms: int) -> None:
        maybe_started = self._order.maybe_started()
        if len(maybe_started) < self._order.in_flight:
            # The application may have completed the first record and started a later one: probe them one by one.
            self._gate.begin_probe(self._buffer.low)
        for index in maybe_started:
            self._failures.count_crash(index)
            if index in self._failures.exhausted:
                self._order.leave(index, index + 1, now_ms)

    @property
    def stopped(self) -> str:
        """Return why nothing is dispatched until an operator decides: one message; empty: dispatching goes on."""
        if self._rules.has_dead_letters or not self._failures.exhausted:
            return ""
        index = min(self._failures.exhausted)
        failure = self._failures.get(index)
        reason = failure.reason[:_REASON_CHARACTERS_MAX] or "the application gave no reason"
        return (
            f"offset {self._buffer.offset(index)} failed permanently, and no dead-letter topic is configured ({reason}): "
            "configure one, skip the record, or commit an offset after it"
        )

    # ------------------------------------------------------------------------------------------ dead letters

    def dead_letters(self) -> Sequence[DueDeadLetter]:
        """Return the records whose dead letters are due now; each once, and again after a failed write."""
        return tuple(map(self._dead_letter, self._failures.dead_letters()))

    def _dead_letter(self, index: int) -> DueDeadLetter:
        failure = self._failures.get(index)
        (batch_slice,) = self._buffer.slices(index, index + 1)
        return DueDeadLetter(batch_slice.first, batch_slice, failure.reason, failure.deliveries)

    def dead_letter_written(self, offset: int) -> None:
        """Mark the record as done: its dead letter is durable."""
        index = self._writing(offset)
        if index is not None:
            self._finish(index, index + 1)

    def dead_letter_failed(self, offset: int) -> None:
        """Make the dead letter due again."""
        index = self._writing(offset)
        if index is not None:
            self._failures.dead_letter_failed(index)

    def _writing(self, offset: int) -> int | None:
        """Return the index of a record whose dead letter is being written; None: the record was settled meanwhile."""
        index = self._buffer.index(offset)
        is_writing = self._failures.get(index).disposition is Disposition.WRITING
        return index if is_writing and self._buffer.offset(index) == offset else None

    # ------------------------------------------------------------------------------------------ committing

    @property
    def point(self) -> CommitPoint:
        """Return the point to commit now: a restart at this point loses no record, and knows which ones may be in flight."""
        return self._point(self._gate.state(self._buffer.low))

    def _point(self, state: State) -> CommitPoint:
        offset = self._buffer.offset(self._buffer.low)
        if not self._gate.has_metadata:
            return CommitPoint(offset, "")
        failure = self._inherited or self._failures.get(self._buffer.low)
        if state is State.OPEN and failure is NO_FAILURE and not self._completed_ahead:
            return CommitPoint(offset, OPEN_METADATA)
        return CommitPoint(
            offset,
            CommitMetadata(
                state, failure.retries, failure.crashes, self._completed_ahead_text(state, offset)
            ).metadata,
        )

    def _completed_ahead_text(self, state: State, offset: int) -> str:
        if not self._reports_completed_ahead:
            return ""
        if state is State.CLEAN:
            return completed_ahead.write(self._buffer.completed_ahead())
        # Encoding it anew with each verdict would cost too much; after a crash, records completed since are delivered again.
        return self._completed_ahead if offset < self._completed_ahead_end else ""

    @property
    def awaits_commit(self) -> bool:
        """Return True if dispatch waits until `point` is committed. A call of `take` may change this."""
        return self._gate.is_wanted and self._gate.awaits(self.point)

    def committed(self, point: CommitPoint) -> None:
        """Record that the coordinator stores this point."""
        commit_metadata = parse_commit_metadata(point.metadata)
        if commit_metadata.state is State.CLEAN and commit_metadata.completed_ahead:
            self._completed_ahead, self._completed_ahead_end = (
                commit_metadata.completed_ahead,
                completed_ahead.read(commit_metadata.completed_ahead).end,
            )
        self._gate.committed(point, self.point)

    @property
    def first_unresolved(self) -> tuple[Batch, int] | None:
        """Return the record at the commit point as (batch, offset); None: it was not fetched."""
        low = self._buffer.low
        return (self._buffer.batch(low), self._buffer.offset(low)) if low < self._buffer.end else None

    def omit_completed_ahead(self) -> None:
        """Omit offsets completed ahead from now on, because the coordinator refuses long metadata; they may be delivered again."""
        self._reports_completed_ahead = False

    def close(self) -> CommitPoint:
        """Return the point to commit at a clean end of the delivery epoch."""
        return self._point(State.CLEAN)


def _inherited(commit_metadata: CommitMetadata | None) -> FailureRecord | None:
    """Return the failures of the record at the start; a record that was dispatched on its own and not settled counts a crash."""
    if commit_metadata is None:
        return None
    died = commit_metadata.state in (State.ONE, State.ALONE)
    failure = FailureRecord(
        commit_metadata.retries, commit_metadata.crashes + died, commit_metadata.state is State.ALONE
    )
    return failure if failure.failed else None
