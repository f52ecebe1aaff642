"""
Rules for the records that members processed, by the events of applications, acknowledgements to the producer, and commits.

Nothing is lost: each record that was acknowledged to the producer is done, or is a dead letter. A record is done twice
only if the member that did it first was killed, frozen or hung meanwhile, and it was not committed then. No commit goes back,
and none goes beyond a record that is not done.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from tests.sidecar.delivery.rounds.engine import Position
from tests.sidecar.delivery.rounds.source import Look
from tests.support.app import Event

SHOWN = 5


class Done(NamedTuple):
    """A record that an application completed."""

    position: Position
    by: str
    at_ms: int


class Hit(NamedTuple):
    """Something was done to a member; until the next one all that is repeated is repeated for that."""

    what: str
    at_ms: int
    # What may be repeated: of these partitions what was not committed.
    had: frozenset[int] = frozenset()
    committed: Mapping[int, int] = {}

    def excuses(self, position: Position) -> bool:
        """Return True if this record may be processed once more."""
        return position.partition in self.had and position.offset >= self.committed.get(position.partition, 0)


class Gap(NamedTuple):
    """A partition between the applications of two members."""

    what: str
    partition: int
    unowned_ms: int
    limit_ms: int | None
    # Who else had it when the next one was given it.
    beside: str = ""


@dataclass(frozen=True)
class History:
    """All of it, once everything is done."""

    acknowledged: Mapping[Position, str]
    done: Sequence[Done]
    # What a `done` event said of its first record.
    values: Sequence[tuple[Position, str]]
    hits: Sequence[Hit]
    looks: Sequence[Look]
    gaps: Sequence[Gap] = ()
    dead: frozenset[Position] = field(default=frozenset())

    def faults(self) -> Sequence[str]:
        """Each broken rule in a sentence; there should be none."""
        rules: tuple[Callable[[], Iterator[str]], ...] = (
            self._lost,
            self._others,
            self._repeated,
            self._lowered,
            self._committed_undone,
            self._unowned_too_long,
            self._two_at_a_time,
        )
        return [fault for rule in rules for fault in list(rule())[:SHOWN]]

    def repeats(self, what: str) -> int:
        """Return the number of records that were processed again after such a hit."""
        return sum(hit.what == what for hit, _ in self._again())

    @property
    def repeats_of_all(self) -> int:
        """Number of records that were processed again, whatever the hit."""
        return sum(1 for _ in self._again())

    def _lost(self) -> Iterator[str]:
        done = {each.position for each in self.done}
        for position in sorted(self.acknowledged.keys() - done - self.dead):
            yield f"lost: {position} was acknowledged to the producer, and nobody has done it"

    def _others(self) -> Iterator[str]:
        for position, value in self.values:
            if self.acknowledged.get(position) != value:
                yield f"another record: {position} was done as {value}, and is {self.acknowledged.get(position)}"
        for position in sorted({each.position for each in self.done} & self.dead):
            yield f"another record: {position} was done, and is a dead letter too"

    def _again(self) -> Iterator[tuple[Hit, Done]]:
        seen: set[Position] = set()
        nothing = Hit("nothing", 0)
        for each in sorted(self.done, key=lambda done: done.at_ms):
            if each.position in seen:
                yield (
                    max((hit for hit in self.hits if hit.at_ms <= each.at_ms), default=nothing, key=at),
                    each,
                )
            seen.add(each.position)

    def _repeated(self) -> Iterator[str]:
        for hit, each in self._again():
            if not hit.excuses(each.position):
                yield f"repeated: {each.position} was done again by {each.by} after {hit}"

    def _lowered(self) -> Iterator[str]:
        highest: dict[int, int] = {}
        for look in sorted(self.looks, key=lambda each: each.asked_ms):
            for partition, before in highest.items():
                if look.offsets.get(partition, -1) < before:
                    yield f"lowered: {before} was committed of {partition}, and later {look}"
            highest |= look.offsets

    def _committed_undone(self) -> Iterator[str]:
        until_ms = self._all_done_until()
        for look in self.looks:
            for partition, offset in look.offsets.items():
                if (
                    offset > 0
                    and not until_ms[partition].get(offset - 1, look.answered_ms + 1) <= look.answered_ms
                ):
                    yield f"not done: {offset} of {partition} was committed before all below it was done: {look}"

    def _all_done_until(self) -> Mapping[int, Mapping[int, int]]:
        """By partition and offset, when that record and all below it were done."""
        first_ms = dict.fromkeys(self.dead, 0)
        for each in self.done:
            first_ms[each.position] = min(each.at_ms, first_ms.get(each.position, each.at_ms))
        until_ms: dict[int, dict[int, int]] = defaultdict(dict)
        for position in sorted(first_ms):
            below = until_ms[position.partition]
            if position.offset == 0:
                below[0] = first_ms[position]
            elif position.offset - 1 in below:
                below[position.offset] = max(first_ms[position], below[position.offset - 1])
        return until_ms

    def _unowned_too_long(self) -> Iterator[str]:
        for gap in self.gaps:
            if gap.limit_ms is not None and gap.unowned_ms > gap.limit_ms:
                yield f"unowned too long: {gap}"

    def _two_at_a_time(self) -> Iterator[str]:
        for gap in self.gaps:
            if gap.beside:
                yield f"two at a time: {gap}"


def at(hit: Hit) -> int:
    """When it was."""
    return hit.at_ms


def done_by(name: str, topic: str, events: Sequence[Event]) -> Iterator[Done]:
    """Return the completed records of one application, one by one."""
    for event in events:
        if event["event"] == "done" and event["verdict"] != "RETRY" and event["topic"] == topic:
            for offset in range(event["first"], event["last"] + 1):
                yield Done(Position(event["partition"], offset), name, event["monotonic_ms"])


def values_of(topic: str, events: Sequence[Event]) -> Iterator[tuple[Position, str]]:
    """Return the values of records, as far as the application reported them."""
    for event in events:
        if event["event"] == "done" and event["topic"] == topic:
            yield Position(event["partition"], event["first"]), event["value"]


def lines(title: str, history: History) -> Iterator[str]:
    """A table for people."""
    done = {each.position for each in history.done}
    yield f"{title}: {len(history.acknowledged)} records, {len(done)} done, {len(history.dead)} dead letters, {len(history.looks)} looks"
    yield f"  {'what':<36}{'times':>7}{'repeats':>9}{'moved':>7}{'unowned p50':>13}{'max ms':>8}{'limit':>7}"
    for what in dict.fromkeys(hit.what for hit in history.hits):
        gaps = [gap for gap in history.gaps if gap.what == what]
        times = sum(hit.what == what for hit in history.hits)
        unowned = [gap.unowned_ms for gap in gaps]
        p50, highest = (round(median(unowned)), max(unowned)) if unowned else ("-", "-")
        limit = next((gap.limit_ms for gap in gaps if gap.limit_ms is not None), "-")
        yield f"  {what:<36}{times:>7}{history.repeats(what):>9}{len(gaps):>7}{p50:>13}{highest:>8}{limit:>7}"
