"""
The ledger once more, record by record and as simply as can be: what the real one is compared with.

It knows of no commits, marks and fences; those who hold it beside a ledger do.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from rota_sidecar.core.ledger.batches import Ordering
from rota_sidecar.core.ledger.rules import Rules, Verdict


class Is(Enum):
    """State of a record."""

    FRESH = "never handed out"
    HELD = "in hand"
    BACK = "to be handed out again"
    WAITING = "to be handed out again, later"
    EXHAUSTED = "failed permanently"
    DONE = "done"


@dataclass
class Record:
    """One record."""

    key: bytes | None
    where: Is = Is.FRESH
    due_ms: int = 0
    retries: int = 0
    crashes: int = 0
    was_alone: bool = False
    # The application wants it never again.
    is_buried: bool = False

    @property
    def failed(self) -> int:
        return self.retries + self.crashes


@dataclass
class Naive:
    """By offset, ascending."""

    rules: Rules
    start: int
    keys: Mapping[int, bytes | None]
    records: dict[int, Record] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.position = self.start

    def read(self, until: int) -> None:
        """All up to there has been read."""
        for offset, key in self.keys.items():
            if self.position <= offset < until:
                self.records[offset] = Record(key)
        self.position = max(self.position, until)

    def at(self, *where: Is) -> list[int]:
        return [offset for offset, record in self.records.items() if record.where in where]

    @property
    def undone(self) -> list[int]:
        return [offset for offset, record in self.records.items() if record.where is not Is.DONE]

    @property
    def low(self) -> int:
        """Return the offset to commit."""
        return next(iter(self.undone), self.position)

    def is_isolated(self, offset: int) -> bool:
        record = self.records[offset]
        return record.crashes > 0 and record.failed > self.rules.retries

    # ------------------------------------------------------------------------------------------ what may go

    def ready(self, now_ms: int) -> list[int]:
        """Return the offsets that may be dispatched, in ascending order."""
        for record in self.records.values():
            if record.where is Is.WAITING and record.due_ms <= now_ms:
                record.where = Is.BACK
        window = [offset for offset in self.records if offset >= self.low][: self.rules.in_flight_max]
        found = list(
            self._in_order(window) if self.rules.ordering is Ordering.PARTITION else self._lanes(window)
        )
        if self.rules.ordering is Ordering.PARTITION:
            isolated_records = [at for at, offset in enumerate(found) if self.is_isolated(offset)]
            return found[: max(1, isolated_records[0])] if isolated_records else found
        return [offset for offset in found if self.is_isolated(offset)][:1] or found

    def _in_order(self, window: Sequence[int]) -> Iterator[int]:
        for offset in window:
            match self.records[offset].where:
                case Is.WAITING:
                    return
                case Is.HELD:
                    if not self.rules.takes_many:
                        return
                case Is.FRESH | Is.BACK:
                    yield offset
                    if not self.rules.takes_many:
                        return
                case Is.EXHAUSTED | Is.DONE:
                    pass

    def _lanes(self, window: Sequence[int]) -> Iterator[int]:
        busy: set[bytes] = set()
        for offset in window:
            record = self.records[offset]
            key = record.key if self.rules.ordering is Ordering.KEY else None
            if record.where is Is.DONE or key in busy:
                continue
            if key is not None:
                busy.add(key)
            if record.where in (Is.FRESH, Is.BACK):
                yield offset

    def mark_dispatched(self, offset: int, *, alone: bool) -> int:
        """For which time."""
        record = self.records[offset]
        record.where, record.was_alone = Is.HELD, alone
        return record.failed + 1

    # ------------------------------------------------------------------------------------------ verdicts

    def accepts(self, first: int, last: int, verdict: Verdict) -> bool:
        """Return True if that verdict is valid."""
        inside = [offset for offset in self.keys if first <= offset <= last]
        if first < self.start or (first != last and verdict in (Verdict.RETRY, Verdict.DEAD_LETTER)):
            return False
        records = [self.records.get(offset) for offset in inside]
        if first == last and verdict is Verdict.SKIP and not self.rules.has_dead_letters:
            return bool(records) and records[0] is not None and records[0].where in (Is.HELD, Is.EXHAUSTED)
        return (
            bool(records) and last < self.position and all(each and each.where is Is.HELD for each in records)
        )

    def judge(self, first: int, last: int, verdict: Verdict, due_ms: int) -> list[int]:
        """Apply a verdict; `due_ms`: the time of a record's next delivery."""
        inside = [offset for offset in self.records if first <= offset <= last]
        match verdict:
            case Verdict.ACK | Verdict.SKIP:
                for offset in inside:
                    self.records[offset].where = Is.DONE
                return inside
            case Verdict.DEAD_LETTER:
                self.records[first].where = Is.EXHAUSTED
                self.records[first].is_buried = True
            case Verdict.RETRY:
                record = self.records[first]
                record.retries += 1
                record.due_ms = due_ms
                record.where = Is.EXHAUSTED if record.retries > self.rules.retries else Is.WAITING
                if self.rules.ordering is Ordering.PARTITION:
                    self._return(first)
        return []

    def _return(self, first: int) -> None:
        for offset in self.at(Is.HELD):
            if offset >= first:
                self.records[offset].where = Is.BACK

    def settle_below(self, offset: int) -> list[int]:
        """Apply the end of the application."""
        before = self.undone
        self.read(offset)
        for each in self.records:
            if each < offset:
                self.records[each].where = Is.DONE
        return [each for each in before if each < offset]

    def gone(self, *, clean: bool) -> None:
        """The application is."""
        held = self.at(Is.HELD)
        self._return(-1)
        maybe_started = held[:1] if self.rules.ordering is Ordering.PARTITION else held
        for offset in [] if clean else maybe_started:
            record = self.records[offset]
            record.crashes += 1
            if record.was_alone and record.failed > self.rules.retries:
                record.where = Is.EXHAUSTED

    def inherit(self, start: int, retries: int, crashes: int, *, alone: bool) -> None:
        """The record at the start comes with that."""
        record = self.records.get(start)
        if record is not None:
            record.retries, record.crashes = retries, crashes
            record.where = Is.BACK if record.failed else Is.FRESH
            if crashes and alone and record.failed > self.rules.retries:
                record.where = Is.EXHAUSTED
