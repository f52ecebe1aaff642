"""
Costs of a workload that is scaled while a trace of load is sent to it: rebalances, time without an owner, repeated and late records, pods.

Computed afterwards, from what its applications wrote (`lives`), when each record was sent, and samples of its pods. Times in ms are those of
the machine's steady clock, which pods, producer and samples share.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.cluster.disruptions.lives import Life
from tests.sidecar.delivery.rounds.gaps import Notice, gaps_of
from tests.sidecar.delivery.rounds.history import Hit
from tests.support.sidecar import Event

TRACE, AFTER = "trace", "after"


class Span(NamedTuple):
    """Begin and end of the trace."""

    began_ms: int
    ended_ms: int

    @property
    def duration_s(self) -> float:
        return (self.ended_ms - self.began_ms) / 1000


class Sample(NamedTuple):
    """The workload at a time since the begin of the trace."""

    at_s: float
    # Replicas by the workload's spec.
    desired: int
    # Pods that exist, whether or not they have started or are about to end.
    pods: int


class Score(NamedTuple):
    """Costs within the trace."""

    rebalances: int
    # Sum over all partitions.
    unowned_s: float
    # Records that were processed again.
    repeated: int
    # Time in which the oldest record was too old.
    late_s: float
    pod_minutes: float


def processed_by(lives: Iterable[Life]) -> Iterator[tuple[int, int]]:
    """Yield number and time in ms of each record that was processed, as often as it was; its value is its number."""
    for life in lives:
        for event in life.events:
            if event["event"] == "done":
                yield int(event["value"]), event["monotonic_ms"]


def first_times(processed: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the time in ms at which each record was processed first, by its number."""
    found: dict[int, int] = {}
    for number, at_ms in processed:
        found[number] = min(at_ms, found.get(number, at_ms))
    return found


def repeated(processed: Iterable[tuple[int, int]], span: Span) -> int:
    """Return how many times records were processed again until the end of the trace."""
    numbers = [number for number, at_ms in processed if at_ms <= span.ended_ms]
    return len(numbers) - len({*numbers})


def late_s(sent_ms: Mapping[int, int], done_ms: Mapping[int, int], span: Span, limit_s: float) -> float:
    """Return for how long within the trace the oldest record that was not processed was older than the limit, in seconds."""
    until_ms = span.ended_ms
    late = sorted(
        (at_ms + limit_s * 1000, min(done_ms.get(number, until_ms), until_ms))
        for number, at_ms in sent_ms.items()
    )
    total_ms, counted_to_ms = 0.0, float(span.began_ms)
    for begin_ms, end_ms in late:
        total_ms += max(0.0, end_ms - max(begin_ms, counted_to_ms))
        counted_to_ms = max(counted_to_ms, end_ms)
    return total_ms / 1000


def lags(sent_ms: Mapping[int, int], done_ms: Mapping[int, int], times_ms: Sequence[float]) -> list[int]:
    """Return the number of records that were sent and not processed, at each of these times."""
    sent, done = sorted(sent_ms.values()), sorted(done_ms.values())
    return [bisect_right(sent, at_ms) - bisect_right(done, at_ms) for at_ms in times_ms]


def unowned_s(notices: Iterable[tuple[str, Sequence[Notice]]], span: Span) -> float:
    """Return the time for which partitions had no owner before their next one, summed over all of them, in seconds."""
    hits = [Hit(TRACE, span.began_ms), Hit(AFTER, span.ended_ms)]
    return sum(gap.unowned_ms for gap in gaps_of(notices, hits, {}) if gap.what == TRACE) / 1000


def generation(events: Iterable[Event], until_ms: int) -> int:
    """Return the highest generation in these events up to a time."""
    return max(
        (each["generation"] for each in events if "generation" in each and each["monotonic_ms"] <= until_ms),
        default=0,
    )


def pod_minutes(samples: Sequence[Sample], duration_s: float) -> float:
    """Return the sum of the times for which pods exist, in minutes; each sample holds until the next one."""
    ends = [*(later.at_s for _, later in pairwise(samples)), duration_s]
    return sum(each.pods * (end - each.at_s) for each, end in zip(samples, ends, strict=True)) / 60
