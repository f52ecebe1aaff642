"""
One partition in one tenure: what was read, what the application holds, and how far it is done. The ledger's door.

Called by `rota_sidecar.core.delivery`, which drops it with the tenure, and with every seek.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import assert_never

from rota_sidecar.core.ledger import completed_ahead
from rota_sidecar.core.ledger.batches import Batch, Dispatch, Ordering, Piece
from rota_sidecar.core.ledger.commit_points import Mark, Point, State, read_mark
from rota_sidecar.core.ledger.dispatch_gate import Permit
from rota_sidecar.core.ledger.failures import Fate, Trouble, Troubles
from rota_sidecar.core.ledger.in_order import InOrder
from rota_sidecar.core.ledger.lanes import Lanes
from rota_sidecar.core.ledger.order import Order
from rota_sidecar.core.ledger.outcomes import DueDeadLetter, Judged
from rota_sidecar.core.ledger.record_buffer import Shelf
from rota_sidecar.core.ledger.rules import Rules, Verdict
from rota_sidecar.core.ledger.runs import Run

# Of the application's reason, in a sentence of ours.
_REASON_CHARACTERS_MAX = 200


class Ledger:
    """Nothing here is asked for what the application said of another ledger."""

    def __init__(self, start: int, rules: Rules, mark: Mark | None) -> None:
        """Begin at `start`, whose commit had this mark; None: the sidecar commits nothing here by itself."""
        self._start = start
        self._rules = rules
        # What the last clean commit said to be done beyond it. It is said on until all before it is done too.
        self._beyond = mark.beyond if mark is not None else ""
        done_before = completed_ahead.read(self._beyond)
        self._beyond_end = done_before.end if done_before else start
        self._says_beyond = True
        self._shelf = Shelf(start, done_before)
        self._order: Order
        self._is_in_order = rules.ordering is Ordering.PARTITION
        if self._is_in_order:
            self._order = InOrder(self._shelf, takes_many=rules.takes_many)
        else:
            self._order = Lanes(self._shelf, keyed=rules.ordering is Ordering.KEY)
        self._troubles = Troubles(rules)
        self._permit = Permit(has_marks=mark is not None)
        # What is known of the record at the start, before that is read.
        self._inherited = _inherited(mark)
        # The last one that was handed out alone.
        self._alone: int | None = None
        # Of what is handed out: how many RETRYs there were before it.
        self._turn = 0
        if mark is not None and mark.state is not State.CLEAN:
            self._permit.caution.begin(0)

    # ------------------------------------------------------------------------------------------ reading

    @property
    def position(self) -> int:
        """Where to read on."""
        return self._shelf.position

    @property
    def buffered_bytes(self) -> int:
        """Of what was read and never handed out."""
        return self._shelf.buffered_bytes

    def fetched(self, batches: Sequence[Batch], next_offset: int) -> None:
        """These come next; reading goes on at `next_offset`. What lies before the position is passed over."""
        if self._rules.ordering is Ordering.KEY:
            for batch in batches:
                if batch.keys is None:
                    raise ValueError(
                        f"the batch at offset {batch.first} has no keys: read them, or order by partition"
                    )
        self._shelf.add(batches, next_offset)
        self._meet_first()

    def give_up(self, batch: Batch, next_offset: int, reason: str, now_ms: int) -> None:
        """
        Count what stands for an unreadable batch as failed for good; reading goes on at `next_offset`.

        `batch` is one record, which stands for all offsets up to `next_offset`: those of them that are done already are left
        out, and nothing is left of it when all are. Everything that was read before is done.
        """
        missing = self._shelf.not_done_before(batch.first, next_offset)
        place = self._shelf.end
        self.fetched([replace(batch, first=missing)] if missing < next_offset else [], next_offset)
        if place < self._shelf.end and place not in self._troubles.doomed:
            self._order.pick(self._shelf.end, 1, 1, now_ms)
            self._order.leave(place, self._shelf.end, now_ms)
            self._troubles.reject(place, reason)
        self._permit.withdraw()

    def _meet_first(self) -> None:
        """What is known of the record at the start is of no other one: that may be gone from the log by now."""
        inherited, self._inherited = self._inherited, None
        if inherited is None or self._shelf.position == self._start:
            self._inherited = inherited
        elif self._shelf.undone and self._shelf.offset(0) == self._start:
            # It was handed out before, in another tenure.
            self._order.pick(1, 1, 1, 0)
            self._order.leave(0, 1, 0)
            self._troubles.inherit(0, inherited)
            if 0 not in self._troubles.doomed:
                self._order.again(0)

    # ------------------------------------------------------------------------------------------ handing out

    @property
    def dispatch_position(self) -> int:
        """The next offset that is handed out for the first time."""
        return self._shelf.offset(self._order.fresh)

    @property
    def waiting(self) -> int:
        """Records that were read and are not in hand; those that come again are among them."""
        return self._shelf.undone - self._order.in_flight - len(self._troubles.doomed)

    @property
    def in_flight(self) -> int:
        """Records that the application has."""
        return self._order.in_flight

    @property
    def lanes_busy(self) -> int:
        """How many records it may be working on at the same time."""
        return self._order.lanes_busy

    @property
    def wants_alone(self) -> bool:
        """
        A record is to go out while nothing else is in the application's hands, or is there now.

        Hand out nothing of other partitions then, and offer `alone` when the hands are empty; to one ledger at a time,
        until it does not want it any more.
        """
        return self._is_alone or (not self.stopped and self._loner() is not None)

    @property
    def _is_alone(self) -> bool:
        return self._alone is not None and self._order.missing(self._alone, self._alone + 1) > self._alone

    def _loner(self) -> int | None:
        loners = self._troubles.loners
        return self._order.loner(loners, self._before()) if loners else None

    def _before(self) -> int:
        """Nothing goes out from this place on."""
        low = self._shelf.low
        before = min(self._shelf.end, low + self._rules.in_flight_max)
        fence = self._permit.caution.fence(low)
        if fence is not None:
            before = min(before, fence)
        if self._is_in_order:
            before = min(before, self._troubles.first_waiting(before))
        return before

    def take(self, records_max: int, lanes_max: int, now_ms: int, *, alone: bool) -> Sequence[Dispatch]:
        """
        What goes to the application now.

        `lanes_max`: so many lanes more may be busy. `alone`: nothing else is in its hands, and nothing will be.
        """
        if self.stopped or self._is_alone or records_max < 1:
            return ()
        for place in self._troubles.wake(now_ms):
            self._order.again(place)
        loner = self._loner()
        if loner is not None:
            return self._take_loner(loner, now_ms, is_free=alone and lanes_max > 0)
        before = self._before()
        if not self._order.is_ready(before, lanes_max) or not self._may_go(State.ONE):
            return ()
        self._alone = None
        return self._dispatches(self._order.pick(before, records_max, lanes_max, now_ms))

    def _take_loner(self, place: int, now_ms: int, *, is_free: bool) -> Sequence[Dispatch]:
        if not is_free or self._order.in_flight:
            # It was announced that nothing else is in hand.
            self._permit.withdraw()
            return ()
        if not self._may_go(State.ALONE):
            return ()
        self._order.pick_loner(place, now_ms)
        self._alone = place
        return self._dispatches([Run(place, place + 1)])

    def _may_go(self, state: State) -> bool:
        if self._permit.is_granted:
            return True
        self._permit.ask(self._shelf.low, state)
        return self._permit.answer(self.point)

    def _dispatches(self, runs: Sequence[Run]) -> Sequence[Dispatch]:
        if runs and not self._troubles:
            pieces = [piece for run in runs for piece in self._shelf.pieces(run.first, run.end)]
            return (Dispatch(1, pieces, self._turn),)
        found: list[tuple[int, list[Piece]]] = []
        for run in runs:
            for deliveries, first, end in self._deliveries(run):
                if not found or found[-1][0] != deliveries:
                    found.append((deliveries, []))
                found[-1][1].extend(self._shelf.pieces(first, end))
        return tuple(Dispatch(deliveries, pieces, self._turn) for deliveries, pieces in found)

    def _deliveries(self, run: Run) -> Iterator[tuple[int, int, int]]:
        """Which of these are handed out for which time."""
        first = run.first
        for place in self._troubles.within(run.first, run.end):
            trouble = self._troubles.get(place)
            assert trouble is not None
            trouble.was_alone = place == self._alone
            if first < place:
                yield 1, first, place
            yield trouble.failed + 1, place, place + 1
            first = place + 1
        if first < run.end:
            yield 1, first, run.end

    @property
    def wake_ms(self) -> int | None:
        """When `take` may give a record again that waits; in the past until `take` was asked."""
        return self._troubles.wake_ms

    @property
    def held_since_ms(self) -> int | None:
        """Since when the application works on the same record; the longest counts. None: it has none."""
        return self._order.held_since_ms

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
        """The application's verdict on the records from `first` to `last`, inclusive."""
        place, end = self._shelf.place(first), self._shelf.place(last + 1)
        refusal = self._wrong(first, last, verdict) or self._out_of_hand(first, place, end)
        if refusal and verdict is Verdict.SKIP and first == last and self._stops(place, first):
            self._finish(place, end)
            return Judged(1)
        if refusal:
            return Judged(0, refusal)
        self._order.leave(place, end, now_ms)
        match verdict:
            case Verdict.ACK | Verdict.SKIP:
                self._finish(place, end)
            case Verdict.RETRY:
                # Those behind it come again even if it does not: the application has dropped them.
                self._order.call_back(place)
                self._turn += 1
                self._troubles.retry(place, now_ms, retry_after_ms, reason)
            case Verdict.DEAD_LETTER:
                self._troubles.condemn(place, reason)
            case _:
                assert_never(verdict)
        self._permit.withdraw()
        return Judged(end - place)

    def _stops(self, place: int, offset: int) -> bool:
        trouble = self._troubles.doomed.get(place)
        return trouble is not None and trouble.fate is Fate.STOP and self._shelf.offset(place) == offset

    def _wrong(self, first: int, last: int, verdict: Verdict) -> str:
        if last < first:
            return f"the verdict on {first} to {last} is on nothing: the last offset lies before the first"
        if first != last and verdict in (Verdict.RETRY, Verdict.DEAD_LETTER):
            return f"{verdict.name} was said of {first} to {last}: say it of one record at a time"
        if last >= self._shelf.position:
            return f"offset {last} was never handed out: reading has come to {self._shelf.position}"
        return ""

    def _out_of_hand(self, offset: int, first: int, end: int) -> str:
        """Empty: all of these are in hand."""
        if offset < self._shelf.floor:
            return f"offset {offset} is done already: give one verdict for each delivery"
        if first == end:
            return f"there is no record at offset {offset}: give verdicts on what was handed out"
        missing = self._order.missing(first, end)
        return "" if missing == end else self._why_not_in_hand(missing)

    def _why_not_in_hand(self, place: int) -> str:
        offset = self._shelf.offset(place)
        if place in self._troubles.doomed:
            return f"offset {offset} has a verdict already: give one for each delivery"
        if self._shelf.is_done(place):
            return f"offset {offset} is done already: give one verdict for each delivery"
        if self._order.is_fresh(place):
            return f"offset {offset} was never handed out: give verdicts on what was"
        return f"offset {offset} is to be handed out again: give a verdict then"

    def _finish(self, first: int, end: int) -> None:
        self._order.finish(first, end)
        self._troubles.forget(first, end)
        self._shelf.finish(first, end)

    def settle_below(self, offset: int, now_ms: int) -> None:
        """Everything before the offset is done, whatever it was; if that was not read so far, it is not read."""
        place = self._shelf.place(offset)
        if place > self._shelf.low:
            self._order.pass_over(place, now_ms)
            self._troubles.forget(self._shelf.low, place)
            for run in self._shelf.undone_before(place):
                self._shelf.finish(run.first, run.end)
        self._shelf.skip_to(offset)
        self._meet_first()

    def application_gone(self, now_ms: int, *, clean: bool) -> None:
        """Nothing is in hand any more. Unless it went in good order, what it worked on is suspected."""
        if not clean:
            self._charge(now_ms)
        self._order.return_all()
        self._permit.withdraw()

    def _charge(self, now_ms: int) -> None:
        suspects = self._order.suspects()
        if len(suspects) < self._order.in_flight:
            # Some of those behind it may have been begun too, and it may have been done: find out one by one.
            self._permit.caution.begin(self._shelf.low)
        for place in suspects:
            self._troubles.charge(place)
            if place in self._troubles.doomed:
                self._order.leave(place, place + 1, now_ms)

    @property
    def stopped(self) -> str:
        """Why nothing is handed out any more before somebody decides: one sentence, or nothing."""
        if self._rules.has_dead_letters or not self._troubles.doomed:
            return ""
        place = min(self._troubles.doomed)
        trouble = self._troubles.doomed[place]
        reason = trouble.reason[:_REASON_CHARACTERS_MAX] or "the application gave no reason"
        return (
            f"offset {self._shelf.offset(place)} has failed for good, and there is no dead-letter topic ({reason}): "
            "name one, skip the record, or commit past it"
        )

    # ------------------------------------------------------------------------------------------ dead letters

    def dead_letters(self) -> Sequence[DueDeadLetter]:
        """Records that are to be written as dead letters now; each is given once, and again after it failed."""
        return tuple(map(self._dead_letter, self._troubles.dead_letters()))

    def _dead_letter(self, place: int) -> DueDeadLetter:
        trouble = self._troubles.doomed[place]
        (piece,) = self._shelf.pieces(place, place + 1)
        return DueDeadLetter(piece.first, piece, trouble.reason, trouble.deliveries)

    def dead_letter_written(self, offset: int) -> None:
        """It is there, durably: the record is done."""
        place = self._writing(offset)
        if place is not None:
            self._finish(place, place + 1)

    def dead_letter_failed(self, offset: int) -> None:
        """It is not, and is due again."""
        place = self._writing(offset)
        if place is not None:
            self._troubles.dead_letter_failed(place)

    def _writing(self, offset: int) -> int | None:
        """None: it was settled meanwhile, in another way."""
        place = self._shelf.place(offset)
        trouble = self._troubles.doomed.get(place)
        is_it = trouble is not None and trouble.fate is Fate.WRITING and self._shelf.offset(place) == offset
        return place if is_it else None

    # ------------------------------------------------------------------------------------------ committing

    @property
    def point(self) -> Point:
        """What to commit now: no record at or after this offset is lost when everything here is forgotten."""
        return self._point(self._permit.state(self._shelf.low))

    def _point(self, state: State) -> Point:
        offset = self._shelf.offset(self._shelf.low)
        if not self._permit.has_marks:
            return Point(offset, "")
        trouble = self._inherited or self._troubles.get(self._shelf.low) or _NONE
        return Point(
            offset, Mark(state, trouble.retries, trouble.charges, self._done_beyond(state, offset)).metadata
        )

    def _done_beyond(self, state: State, offset: int) -> str:
        if not self._says_beyond:
            return ""
        if state is State.CLEAN:
            return completed_ahead.write(self._shelf.done_beyond())
        # Anew with each verdict it would cost too much: who is cut off repeats what it did since.
        return self._beyond if offset < self._beyond_end else ""

    @property
    def awaits_commit(self) -> bool:
        """Nothing more is handed out before `point` is committed. `take` may be what makes it so."""
        return self._permit.is_wanted and self._permit.awaits(self.point)

    def committed(self, point: Point) -> None:
        """It is durable; the latest one counts."""
        mark = read_mark(point.metadata)
        if mark.state is State.CLEAN and mark.beyond:
            self._beyond, self._beyond_end = mark.beyond, completed_ahead.read(mark.beyond).end
        self._permit.committed(point, self.point)

    @property
    def first_unresolved(self) -> tuple[Batch, int] | None:
        """The record at the commit point, where it was read already."""
        low = self._shelf.low
        return (self._shelf.batch(low), self._shelf.offset(low)) if low < self._shelf.end else None

    def say_less(self) -> None:
        """The coordinator takes no long metadata: what is done beyond a commit's offset may come again."""
        self._says_beyond = False

    def close(self) -> Point:
        """What to commit at the end of the tenure, in good order."""
        return self._point(State.CLEAN)


_NONE = Trouble()


def _inherited(mark: Mark | None) -> Trouble | None:
    """Of the record at the start. What went out by itself, and was not settled, has died with the application."""
    if mark is None:
        return None
    died = mark.state in (State.ONE, State.ALONE)
    trouble = Trouble(mark.retries, mark.charges + died, mark.state is State.ALONE)
    return trouble if trouble.failed else None
