"""Rules of listener callbacks, checked over all that the consumers of a group have logged."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Life:
    """One consumer: what it told, in order, and what was done to it."""

    name: str
    events: Sequence[Event]
    # When its process was killed, or stopped for longer than its session lasts.
    killed_ms: int | None = None
    frozen_ms: int | None = None
    frozen_with: frozenset[int] = frozenset()

    @property
    def calls(self) -> list[Event]:
        """Of its listener."""
        return [event for event in self.events if event["event"] in ("assigned", "revoked", "lost")]


class Tenure(NamedTuple):
    """From the call that gave a partition to the end of that which took it."""

    begun_ms: int
    ended_ms: float
    owner: str


def faults(lives: Sequence[Life], *, eager: bool) -> list[str]:
    """All that was wrong; `eager`: each rebalance takes everything and gives it anew."""
    found: list[str] = []
    for life in lives:
        found += [*_calls_out_of_order(life, eager=eager), *_wrongly_lost(life), *_not_rewound(life)]
    numbers = {number for life in lives for call in life.calls for number in call["partitions"]}
    for number in sorted(numbers):
        found += _had_by_two(number, sorted(tenure for life in lives for tenure in _tenures(life, number)))
    return found


def assigned_too_early(lives: Sequence[Life]) -> list[str]:
    """
    Faults of a whole group whose strategy is eager: a partition that was given to any member in a generation while any other still
    revoked what it had in an earlier one.
    """
    return [
        f"{life.name} was given {set(given['partitions'])} in generation {given['generation']} at {given['begun_ms']}, and "
        f"{other.name} had let go of generation {taken['generation']} at {taken['ended_ms']}"
        for life in lives
        for given in life.calls
        for other in lives
        for taken in other.calls
        if (given["event"], taken["event"]) == ("assigned", "revoked")
        and taken["generation"] < given["generation"]
        and given["begun_ms"] < taken["ended_ms"]
    ]


def revocations(lives: Sequence[Life]) -> Mapping[int, int]:
    """Number of members that revoked partitions, by the generation in which they had them."""
    return Counter(
        call["generation"]
        for life in lives
        for call in life.calls
        if call["event"] == "revoked" and call["partitions"]
    )


def _calls_out_of_order(life: Life, *, eager: bool) -> Iterator[str]:
    """
    Faults of assigned partitions that were owned already and revoked ones that were not. An eager rebalance revokes
    all first.
    """
    held: set[int] = set()
    for call in life.calls:
        name, numbers = call["event"], set(call["partitions"])
        if name == "assigned":
            if held & numbers or (eager and held):
                yield f"{life.name} was given {numbers} while it had {held}"
            held |= numbers
        else:
            if not numbers <= held or (eager and held - numbers):
                yield f"{life.name} was told that {numbers} were {name} while it had {held}"
            held -= numbers
    if held and life.events[-1]["event"] == "closed":
        yield f"{life.name} ended in good order, and was not told that {held} went"


def _wrongly_lost(life: Life) -> Iterator[str]:
    """Faults of losses: a consumer that paused beyond its session loses what it had then; the others lose nothing."""
    lost = {number for call in life.calls if call["event"] == "lost" for number in call["partitions"]}
    if lost != life.frozen_with:
        yield f"{life.name} was told that it lost {lost}, and had lost {set(life.frozen_with)}"


def _not_rewound(life: Life) -> Iterator[str]:
    """Faults of positions: the first record of a partition is the one that its listener sought."""
    for event in life.events:
        if event["event"] == "polled" and event["offset"] != event["sought"]:
            yield (
                f"{life.name} sought {event['sought']} in {event['partition']}, and got {event['offset']} first"
            )


def _had_by_two(number: int, tenures: Sequence[Tenure]) -> Iterator[str]:
    for earlier, later in pairwise(tenures):
        if later.begun_ms < earlier.ended_ms:
            yield (
                f"{number} was given to {later.owner} at {later.begun_ms}, and {earlier.owner} had let go of it at "
                f"{earlier.ended_ms}"
            )


def _tenures(life: Life, number: int) -> Iterator[Tenure]:
    """Of one partition; of who is killed, or stands still, one ends with that."""
    begun_ms: int | None = None
    for call in life.calls:
        if number not in call["partitions"]:
            continue
        if call["event"] == "assigned":
            begun_ms = call["begun_ms"]
        elif begun_ms is not None:
            ended_ms = life.frozen_ms if call["event"] == "lost" else call["ended_ms"]
            yield Tenure(begun_ms, call["ended_ms"] if ended_ms is None else ended_ms, life.name)
            begun_ms = None
    if begun_ms is not None:
        yield Tenure(begun_ms, float("inf") if life.killed_ms is None else life.killed_ms, life.name)
