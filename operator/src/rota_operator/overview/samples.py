"""
Lag and throughput of one group over the last WINDOW_MS, for charts.

The shell adds the group's view about once a second; a sample is taken at most every SAMPLE_EVERY_MS. Readers get all samples first,
and then those after the last one that they have.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rota_operator.overview.view import GroupView, PartitionView

WINDOW_MS = 900_000
SAMPLE_EVERY_MS = 5_000
SAMPLES_MAX = WINDOW_MS // SAMPLE_EVERY_MS
# The first partitions of the group's view; the others are part of the group's sums only.
PARTITIONS_MAX = 256
# A partition's processing rate is taken over this time: commits come every few seconds, in steps.
COMMITS_WINDOW_MS = 15_000


class Values(NamedTuple):
    """Values of a group or partition at one time; None is unknown."""

    lag_records: int | None
    lag_seconds: float | None
    # Records per second that arrive.
    arrival_rate: float | None
    # Records per second that are processed; of a partition: that are committed.
    done_rate: float | None


@dataclass(frozen=True, slots=True)
class Sample:
    """Values at one time. Invariant: `partitions` are those of `names`, in their order."""

    # Rises by one with each sample of the group.
    number: int
    at_ms: int
    group: Values
    # As TOPIC-NUMBER; the same object as before while the partitions stay the same.
    names: tuple[str, ...]
    partitions: tuple[Values, ...]


class Samples:
    """
    Invariant: at most SAMPLES_MAX samples, at least SAMPLE_EVERY_MS apart, the last one not before any other, and none WINDOW_MS
    older than that.
    """

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._commits = CommitRates()
        self._next_number = 0

    def add(self, view: GroupView, at_ms: int, partitions_max: int = PARTITIONS_MAX) -> bool:
        """Take a sample if one is due, and return whether it was; a clock that was set back takes later samples away."""
        while self._samples and self._samples[-1].at_ms > at_ms:
            self._samples.pop()
        if self._samples and at_ms - self._samples[-1].at_ms < SAMPLE_EVERY_MS:
            return False
        shown = view.partitions[:partitions_max]
        rates = self._commits.update(shown, at_ms)
        names = tuple(name_of(each) for each in shown)
        if self._samples and self._samples[-1].names == names:
            names = self._samples[-1].names
        group = values(view.lag_records, view.lag_seconds, view.arrival_rate, view.done_rate)
        partitions = tuple(
            values(each.lag_records, each.lag_seconds, each.arrival_rate, rates.get(name))
            for name, each in zip(names, shown, strict=True)
        )
        self._samples.append(Sample(self._next_number, at_ms, group, names, partitions))
        self._next_number += 1
        while self._samples[0].at_ms <= at_ms - WINDOW_MS:
            self._samples.popleft()
        return True

    def since(self, number: int | None) -> Sequence[Sample]:
        """Return the samples after the one of this number, oldest first; None: all."""
        return tuple(each for each in self._samples if number is None or each.number > number)


class CommitRates:
    """Committed offsets of a few samples. Invariant: times rise, and none is more than COMMITS_WINDOW_MS before the last."""

    def __init__(self) -> None:
        self._committed: deque[tuple[int, Mapping[str, int]]] = deque()

    def update(self, partitions: Sequence[PartitionView], at_ms: int) -> Mapping[str, float]:
        """Add the offsets and return the records committed per second; a partition whose offset went back has no rate."""
        now = {name_of(each): each.committed for each in partitions if each.committed is not None}
        while self._committed and self._committed[-1][0] >= at_ms:
            self._committed.pop()
        while self._committed and self._committed[0][0] < at_ms - COMMITS_WINDOW_MS:
            self._committed.popleft()
        rates = {}
        for name, committed in now.items():
            known = [(before_ms, before[name]) for before_ms, before in self._committed if name in before]
            if known and max(offset for _, offset in known) <= committed:
                first_ms, first = known[0]
                rates[name] = (committed - first) * 1000 / (at_ms - first_ms)
        self._committed.append((at_ms, now))
        return rates


def name_of(partition: PartitionView) -> str:
    """Display form, TOPIC-NUMBER."""
    return f"{partition.topic}-{partition.partition}"


def values(
    lag_records: int | None, lag_seconds: float | None, arrival_rate: float | None, done_rate: float | None
) -> Values:
    """Return the values as a chart needs them, with three decimals at most: they are sent often."""
    return Values(lag_records, _rounded(lag_seconds), _rounded(arrival_rate), _rounded(done_rate))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
