"""Partitions of one process over time, by its events and by the hits on it."""

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.sidecar import Event, Partition, flat


class Did(enum.Enum):
    """Hit on a process. A kill and a freeze count from when they took effect, the others from before."""

    TERM = "SIGTERM"
    CONT = "SIGCONT"
    KILL = "SIGKILL"
    STOP = "SIGSTOP"


class Cause(enum.Enum):
    """Cause of a tenure's end."""

    LEFT = "left"
    MOVED = "moved"
    KILLED = "killed"
    FROZEN = "frozen"
    LOST = "lost"


# In good order; without a word.
CLEAN = (Cause.LEFT, Cause.MOVED)
DEAD = (Cause.KILLED, Cause.FROZEN)


class Hit(NamedTuple):
    """Something was done to it."""

    did: Did
    at_ms: int


@dataclass(frozen=True)
class Life:
    """One process, from its start to its end."""

    name: str
    # Who it is to the group: itself, or for static members the instance that it stands for.
    member: str
    events: Sequence[Event]
    hits: Sequence[Hit]


class Tenure(NamedTuple):
    """A partition in the hands of a process."""

    partition: Partition
    life: str
    number: int
    generation: int
    from_ms: int
    # None while it lasts.
    until_ms: int | None = None
    until_generation: int = -1
    cause: Cause | None = None


class Plan(NamedTuple):
    """Partitions that the group's plan gives to a member in a generation."""

    incarnation: int
    generation: int
    partitions: frozenset[Partition]


class Loss(NamedTuple):
    """Partitions of a process when it was frozen, and those that it reported first afterwards."""

    had: frozenset[Partition]
    said: frozenset[Partition]


def story(life: Life) -> Iterator[Event | Hit]:
    """Yield events and hits in order."""
    # At the same moment: it had said it before it was killed or frozen, and says it after it was told or woken.
    entries: list[tuple[int, int, Event | Hit]] = [(event["monotonic_ms"], 1, event) for event in life.events]
    entries += [(hit.at_ms, 0 if hit.did in (Did.TERM, Did.CONT) else 2, hit) for hit in life.hits]
    yield from (each for _, _, each in sorted(entries, key=lambda each: each[:2]))


@dataclass
class _Holder:
    """Partitions of a process, along the story."""

    life: str
    has: dict[Partition, Tenure] = field(default_factory=dict)
    ended: list[Tenure] = field(default_factory=list)
    is_leaving: bool = False

    def end(self, partitions: set[Partition], at_ms: int, generation: int, cause: Cause) -> None:
        for partition in sorted(partitions & self.has.keys()):
            tenure = self.has.pop(partition)
            self.ended.append(tenure._replace(until_ms=at_ms, until_generation=generation, cause=cause))

    def handle(self, event: Event) -> None:
        at_ms, generation = event["monotonic_ms"], event["generation"]
        if event["event"] == "assigned":
            for partition in flat(event["partitions"]):
                self.has[partition] = Tenure(partition, self.life, event["tenure"], generation, at_ms)
        elif event["event"] == "revoked":
            cause = Cause.LEFT if self.is_leaving else Cause.MOVED
            self.end(flat(event["partitions"]), at_ms, generation, cause)
        elif event["event"] == "lost":
            self.end(flat(event["partitions"]), at_ms, generation, Cause.LOST)

    def feel(self, hit: Hit) -> None:
        if hit.did is Did.TERM:
            self.is_leaving = True
        elif hit.did is not Did.CONT:
            cause = Cause.KILLED if hit.did is Did.KILL else Cause.FROZEN
            self.end(set(self.has), hit.at_ms, -1, cause)


def tenures(life: Life) -> Sequence[Tenure]:
    """All of its tenures. Who is killed or frozen has nothing from then on: others may have it a session later."""
    holder = _Holder(life.name)
    for each in story(life):
        if isinstance(each, Hit):
            holder.feel(each)
        else:
            holder.handle(each)
    return [*holder.ended, *holder.has.values()]


def plans(life: Life) -> Iterator[Plan]:
    """
    Yield the partitions that each generation's plan gives to it: those that it keeps and those that it is assigned.

    A `revoking` right after `joined` is the plan too: it takes away. Later in the generation it is not.
    """
    has: set[Partition] = set()
    is_new = False
    for event in life.events:
        kind, partitions = event["event"], flat(event.get("partitions", {}))
        if kind == "joined":
            is_new = True
        elif kind == "assigned":
            has |= partitions
            yield Plan(event["incarnation"], event["generation"], frozenset(has))
            is_new = False
        elif kind == "revoking" and is_new:
            yield Plan(event["incarnation"], event["generation"], frozenset(has - partitions))
            is_new = False
        elif kind in ("revoked", "lost"):
            has -= partitions


def losses(life: Life) -> Iterator[Loss]:
    """For each time that it was woken, what it said of what it had before it said anything else of partitions."""
    has: set[Partition] = set()
    woken: frozenset[Partition] | None = None
    for each in story(life):
        if isinstance(each, Hit):
            if each.did is Did.CONT:
                woken = frozenset(has)
            continue
        kind, partitions = each["event"], flat(each.get("partitions", {}))
        if kind not in ("assigned", "revoking", "revoked", "lost"):
            continue
        if woken is not None:
            yield Loss(woken, frozenset(partitions) if kind == "lost" else frozenset())
            woken = None
        has = has | partitions if kind == "assigned" else has - partitions if kind != "revoking" else has
    if woken is not None:
        yield Loss(woken, frozenset())
