"""
A partition, its commits, and an application that does anything at any time, from one seed.

Beside the ledger stands a naive one. They must say the same, whatever happens; and what the naive one cannot know, the
world checks itself: that no commit passes a record without a final verdict, and that nothing goes out unannounced.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random

from rota_sidecar.core.ledger import commit_points as poison_probe
from rota_sidecar.core.ledger.batches import Batch, Dispatch, Ordering
from rota_sidecar.core.ledger.commit_points import CommitMetadata, CommitPoint, State, parse_commit_metadata
from rota_sidecar.core.ledger.ledger import Ledger
from rota_sidecar.core.ledger.rules import Rules, Verdict
from tests.sidecar.core.ledger.naive import Is, Naive
from tests.sidecar.core.ledger.steps import completed_ahead_of

KEYS = (b"a", b"b", b"c", b"d", None)
SIZE = 10
RETRY_MS = 30
ACTIONS = {
    "fetch": 12,
    "take": 30,
    "ack one": 20,
    "ack many": 6,
    "retry": 10,
    "dead letter": 4,
    "skip": 4,
    "be wrong": 4,
    "write dead letters": 6,
    "commit": 20,
    "let time pass": 10,
    "settle": 1,
    "application leaves": 1,
    "application dies": 6,
    "pod dies": 2,
    "close": 1,
}


# A run in which one of these is rare has shown nothing.
SITUATIONS = (
    "a cut-off tenure is taken over",
    "a record goes out alone",
    "a letter for a record that killed",
    "a letter is written",
    "a partition stops",
    "a partition goes on",
    "caution is over",
    "many go out at once",
    "records are settled that are in hand",
    "a verdict is refused",
    "a batch is read from its middle",
    "the record at the start is gone",
    "what is done behind a gap does not come again",
)


class World:
    """World that a seed describes."""

    def __init__(self, seed: int, met: Counter[str]) -> None:
        self.random = Random(seed)
        self.met = met
        chance = self.random
        self.rules = Rules(
            ordering=chance.choice(list(Ordering)),
            takes_many=chance.random() < 0.7,
            in_flight_max=chance.choice((1, 5, 20, 10_000)),
            retries=chance.choice((0, 1, 3)),
            backoff_ms=RETRY_MS,
            has_dead_letters=chance.random() < 0.8,
        )
        self.workers = chance.choice((1, 2, 8, 64))
        self.has_metadata = chance.random() < 0.8
        self.batches = self._log()
        self.end = self.batches[-1].end + chance.choice((0, 3))
        self.keys = {
            batch.first + at: key for batch in self.batches for at, key in enumerate(batch.keys or ())
        }
        self.now_ms = 0
        # Offsets with a final verdict, ever.
        self.done: set[int] = set()
        self.durable = CommitPoint(self.batches[0].first, "")
        self.said: list[str] = []
        self.open()

    def _log(self) -> list[Batch]:
        chance = self.random
        offset, batches = chance.choice((0, 7)), []
        for _ in range(chance.randint(3, 12)):
            count = chance.randint(1, 8)
            keys = [chance.choice(KEYS) for _ in range(count)]
            batches.append(Batch(offset, count, count * SIZE, None, keys))
            offset += count + chance.choice((0, 0, 0, 1, 4))
        return batches

    # ------------------------------------------------------------------------------------------ tenures

    def open(self) -> None:
        """A tenure begins where the last commit says."""
        commit_metadata = parse_commit_metadata(self.durable.metadata)
        self.ledger = Ledger(self.durable.offset, self.rules, commit_metadata if self.has_metadata else None)
        self.start, self.commit_metadata = (
            self.durable.offset,
            commit_metadata if self.has_metadata else CommitMetadata(),
        )
        # Done in earlier tenures, and said to be so.
        self.carried = completed_ahead_of(self.durable.metadata) if self.has_metadata else set()
        assert self.carried <= self.done
        self.met["what is done behind a gap does not come again"] += bool(self.carried)
        left = {offset: key for offset, key in self.keys.items() if offset not in self.carried}
        self.naive = Naive(self.rules, self.start, left)
        self.is_met = False
        if self.commit_metadata.state is not State.CLEAN:
            self.met["a cut-off tenure is taken over"] += 1
        self.fetching: tuple[list[Batch], int] | None = None
        self.writing: list[int] = []
        self.alone: int | None = None
        # How many records were done when caution was begun last; None: it never was.
        self.cautious_from = 0 if self.commit_metadata.state is not State.CLEAN else None

    def step(self) -> None:
        """One thing happens."""
        action = self.random.choices(list(ACTIONS), list(ACTIONS.values()))[0]
        self.said.append(action)
        getattr(self, action.replace(" ", "_"))()
        self.compare()

    def pod_dies(self) -> None:
        """With everything but the last commit, or the one that is under way."""
        if self.random.random() < 0.3:
            self.durable = self._to_commit()
        self.open()

    def close(self) -> None:
        """In good order, whatever is still in hand."""
        low = self.naive.low
        self.durable = self.ledger.close()
        assert self.durable.offset == low
        assert parse_commit_metadata(self.durable.metadata).state is State.CLEAN
        if self.has_metadata:
            done = self.carried.union(self.naive.at(Is.DONE))
            assert completed_ahead_of(self.durable.metadata) == {offset for offset in done if offset > low}
        self._check_done_below(low)
        self.open()

    def application_leaves(self) -> None:
        self._gone(clean=True)

    def application_dies(self) -> None:
        self._gone(clean=False)

    def _gone(self, *, clean: bool) -> None:
        many = self.rules.ordering is Ordering.PARTITION and len(self.naive.at(Is.HELD)) > 1
        if many and not clean:
            self.cautious_from = len(self.naive.at(Is.DONE))
        self.ledger.application_gone(self.now_ms, clean=clean)
        self.naive.gone(clean=clean)

    # ------------------------------------------------------------------------------------------ reading

    def fetch(self) -> None:
        """Ask, or get what was asked for: whole batches, though they begin before the position."""
        if self.fetching is None:
            ahead = [batch for batch in self.batches if batch.end > self.ledger.position]
            found = ahead[: self.random.randint(0, 3)]
            after = ahead[len(found)].first if len(found) < len(ahead) else self.end
            until = self.random.choice((found[-1].end if found else self.ledger.position, after))
            self.fetching = (found, until)
            return
        batches, until = self.fetching
        self.fetching = None
        self.met["a batch is read from its middle"] += any(
            batch.first < self.ledger.position < batch.end for batch in batches
        )
        self.ledger.fetched(batches, until)
        self.naive.read(until)
        self._meet()

    def _meet(self) -> None:
        """The record at the start is read, or passed over."""
        if not self.is_met and self.naive.position > self.start:
            self.is_met = True
            died = self.commit_metadata.state in (State.ONE, State.ALONE)
            record = self.naive.records.get(self.start)
            self.met["the record at the start is gone"] += record is None
            if record is not None and record.where is Is.FRESH:
                self.naive.inherit(
                    self.start,
                    self.commit_metadata.retries,
                    self.commit_metadata.crashes + died,
                    alone=self.commit_metadata.state is State.ALONE,
                )

    # ------------------------------------------------------------------------------------------ handing out

    def take(self) -> None:
        """The application has room for so many."""
        records_max = self.random.choice((0, 1, 3, 100))
        lanes_max = self.workers - self.ledger.lanes_busy
        if self.rules.ordering is Ordering.PARTITION:
            lanes_max = self.random.choice((0, 1, 1))
        alone = self.random.random() < 0.8 and not self.ledger.in_flight
        dispatches = self.ledger.take(records_max, lanes_max, self.now_ms, alone=alone)
        self._check(dispatches, self._expected(records_max, lanes_max, alone=alone))

    def _expected(self, records_max: int, lanes_max: int, *, alone: bool) -> list[int]:
        """Return the records to dispatch when neither a commit nor a probe holds them back."""
        held = self.naive.at(Is.HELD)
        if records_max and not self.ledger.stopped and self.alone not in held:
            ready = self.naive.ready(self.now_ms)
        else:
            ready = []
        if ready and self.naive.is_isolated(ready[0]):
            return ready[:1] if alone and not held and lanes_max else []
        if self.rules.ordering is not Ordering.PARTITION:
            return ready[: min(records_max, lanes_max)]
        return ready[:records_max] if lanes_max or held else []

    def _check(self, dispatches: Sequence[Dispatch], expected: list[int]) -> None:
        got = [
            (offset, dispatch.deliveries)
            for dispatch in dispatches
            for batch_slice in dispatch.slices
            for offset in range(batch_slice.first, batch_slice.end)
        ]
        if got and self.has_metadata:
            self._check_announced([offset for offset, _ in got])
        if got or not self._may_be_held_back:
            offsets = [offset for offset, _ in got]
            assert offsets == (expected[: len(got)] if self._is_cautious else expected), self.said
        self.met["many go out at once"] += len(got) > 1
        self.met["caution is over"] += bool(got) and self._is_cautious and len(got) > poison_probe.GROUP_MAX
        for offset, deliveries in got:
            alone = self.naive.is_isolated(offset)
            self.alone = offset if alone else None
            self.met["a record goes out alone"] += alone
            assert deliveries == self.naive.mark_dispatched(offset, alone=alone)

    @property
    def _is_cautious(self) -> bool:
        return self.cautious_from is not None

    @property
    def _may_be_held_back(self) -> bool:
        return self._is_cautious or (
            self.has_metadata and parse_commit_metadata(self.durable.metadata).state is State.CLEAN
        )

    def _check_announced(self, offsets: list[int]) -> None:
        commit_metadata = parse_commit_metadata(self.durable.metadata)
        assert commit_metadata.state is not State.CLEAN, "nothing is handed out before a commit says so"
        if self.cautious_from is None:
            return
        if len(self.naive.at(Is.DONE)) - self.cautious_from < poison_probe.SINGLES:
            assert len(offsets) == 1
            assert not self.naive.at(Is.HELD)
            record = self.naive.records[offsets[0]]
            state = State.ALONE if self.naive.is_isolated(offsets[0]) else State.ONE
            assert self.durable.offset == offsets[0]
            assert commit_metadata == CommitMetadata(
                state, record.retries, record.crashes, commit_metadata.completed_ahead
            )

    # ------------------------------------------------------------------------------------------ verdicts

    def ack_one(self) -> None:
        self._judge_one(Verdict.ACK)

    def skip(self) -> None:
        """Also what has stopped the partition."""
        exhausted = self.naive.at(Is.EXHAUSTED)
        if self.ledger.stopped:
            self._judge(exhausted[0], exhausted[0], Verdict.SKIP)
        else:
            self._judge_one(Verdict.SKIP)

    def retry(self) -> None:
        self._judge_one(Verdict.RETRY)

    def dead_letter(self) -> None:
        self._judge_one(Verdict.DEAD_LETTER)

    def ack_many(self) -> None:
        """From the first one on, gaps included."""
        held = self.naive.at(Is.HELD)
        if held:
            self._judge(held[0], self.random.choice(held), Verdict.ACK)

    def be_wrong(self) -> None:
        """Or not, by chance."""
        first = self.random.randint(self.batches[0].first - 1, self.end + 1)
        self._judge(first, first + self.random.choice((-1, 0, 0, 1, 4)), self.random.choice(list(Verdict)))

    def _judge_one(self, verdict: Verdict) -> None:
        held = self.naive.at(Is.HELD)
        if held:
            offset = self.random.choice(held)
            self._judge(offset, offset, verdict)

    def _judge(self, first: int, last: int, verdict: Verdict) -> None:
        after_ms = self.random.choice((0, RETRY_MS))
        was_stopped = self.ledger.stopped
        accepts = self.naive.accepts(first, last, verdict)
        settled, refusal = self.ledger.judge(first, last, verdict, self.now_ms, retry_after_ms=after_ms)
        assert (settled > 0) == (not refusal) == accepts, (first, last, verdict, refusal, self.said)
        if not accepts:
            self.met["a verdict is refused"] += 1
        self.met["a partition goes on"] += bool(was_stopped) and not self.ledger.stopped
        if accepts:
            self.done.update(self.naive.judge(first, last, verdict, self.now_ms + after_ms))

    def settle(self) -> None:
        """The application commits by itself, wherever it is."""
        offset = self.random.randint(self.batches[0].first, self.end)
        self.done.update(each for each in self.keys if each < offset)
        self.met["records are settled that are in hand"] += any(
            each < offset for each in self.naive.at(Is.HELD)
        )
        self.ledger.settle_below(offset, self.now_ms)
        self.naive.settle_below(offset)
        self._meet()

    def write_dead_letters(self) -> None:
        """Write due dead letters, and draw the outcomes of those under way."""
        for offset in self.writing:
            if self.random.random() < 0.6:
                self.ledger.dead_letter_written(offset)
                if self.naive.records[offset].where is Is.EXHAUSTED:
                    self.met["a letter is written"] += 1
                    self.met["a letter for a record that killed"] += self.naive.is_isolated(offset)
                    self.naive.records[offset].where = Is.DONE
                    self.done.add(offset)
            else:
                self.ledger.dead_letter_failed(offset)
        dead_letters = self.ledger.dead_letters()
        self.writing = [dead_letter.offset for dead_letter in dead_letters]
        if self.rules.has_dead_letters:
            assert sorted(self.writing) == self.naive.at(Is.EXHAUSTED)
        for dead_letter in dead_letters:
            assert (dead_letter.batch_slice.first, dead_letter.batch_slice.end) == (
                dead_letter.offset,
                dead_letter.offset + 1,
            )
            record = self.naive.records[dead_letter.offset]
            assert dead_letter.deliveries == record.failed + record.is_buried

    # ------------------------------------------------------------------------------------------ committing

    def commit(self) -> None:
        self.durable = self._to_commit()
        self.ledger.committed(self.durable)

    def _to_commit(self) -> CommitPoint:
        point = self.ledger.point
        self._check_done_below(point.offset)
        assert completed_ahead_of(point.metadata) <= self.carried, (
            "else it would be written anew with each verdict"
        )
        return point

    def _check_done_below(self, offset: int) -> None:
        assert self.done.issuperset(each for each in self.keys if each < offset), "S8"

    def let_time_pass(self) -> None:
        self.now_ms += self.random.choice((1, RETRY_MS, 10 * RETRY_MS))

    # ------------------------------------------------------------------------------------------ comparing

    def compare(self) -> None:
        """The ledger and the naive model agree."""
        held, undone = len(self.naive.at(Is.HELD)), self.naive.undone
        assert self.ledger.position == self.naive.position
        assert self.ledger.in_flight == held
        assert self.ledger.waiting == len(undone) - held - len(self.naive.at(Is.EXHAUSTED))
        assert self.ledger.buffered_bytes == SIZE * len(self.naive.at(Is.FRESH))
        assert self.ledger.dispatch_position == next(iter(self.naive.at(Is.FRESH)), self.naive.position)
        assert self.ledger.point.offset == self.naive.low
        assert bool(self.ledger.stopped) == (
            not self.rules.has_dead_letters and bool(self.naive.at(Is.EXHAUSTED))
        )
        self.met["a partition stops"] += bool(self.ledger.stopped)
        first = self.ledger.first_unresolved
        assert (first[1] if first else None) == next(iter(undone), None)
        assert (self.ledger.in_flight_since_ms is None) == (held == 0)

    def finish(self) -> None:
        """The application does its work from now on, and everything else does too: nothing is left."""
        for _ in range(20 * len(self.keys) + 200):
            self.fetch()
            self.commit()
            for alone in (False, True):
                if alone <= (self.ledger.in_flight == 0):
                    found = self.ledger.take(100, 64, self.now_ms, alone=alone)
                    self._check(found, self._expected(100, 64, alone=alone))
            for offset in [*self.naive.at(Is.HELD), *self.naive.at(Is.EXHAUSTED)]:
                if self.naive.records[offset].where is Is.HELD or not self.rules.has_dead_letters:
                    self._judge(offset, offset, Verdict.SKIP)
            self.write_dead_letters()
            self.now_ms += RETRY_MS
            self.compare()
            if self.ledger.point.offset == self.end:
                break
        assert self.ledger.point.offset == self.end, self.said
        assert self.done == set(self.keys)
