"""Sets of whole numbers as runs of consecutive ones: what it costs depends on the runs, not on the numbers."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple


class Run(NamedTuple):
    """Consecutive numbers from `first` on, before `end`."""

    first: int
    end: int


class Runs:
    """The set. Runs that touch are one."""

    __slots__ = ("_ends", "_firsts", "count")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self.count = 0

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __iter__(self) -> Iterator[Run]:
        return map(Run, tuple(self._firsts), tuple(self._ends))

    @property
    def first(self) -> int:
        """The lowest number; there must be one."""
        return self._firsts[0]

    @property
    def end(self) -> int:
        """What follows the highest number; there must be one."""
        return self._ends[-1]

    def add(self, first: int, end: int) -> None:
        """Put these in; some may be there already."""
        low = bisect_left(self._ends, first)
        high = bisect_right(self._firsts, end)
        if low < high:
            first, end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
            self.count -= sum(self._ends[low:high]) - sum(self._firsts[low:high])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]
        self.count += end - first

    def remove(self, first: int, end: int) -> list[Run]:
        """Take out what is there of these."""
        low = bisect_right(self._ends, first)
        high = bisect_left(self._firsts, end)
        if low >= high:
            return []
        if low + 1 == high:
            return [self._remove_within(low, first, end)]
        inside = list(map(Run, self._firsts[low:high], self._ends[low:high]))
        kept = [Run(inside[0].first, first)] if inside[0].first < first else []
        if inside[-1].end > end:
            kept.append(Run(end, inside[-1].end))
        self._firsts[low:high] = [run.first for run in kept]
        self._ends[low:high] = [run.end for run in kept]
        inside[0] = Run(max(inside[0].first, first), inside[0].end)
        inside[-1] = Run(inside[-1].first, min(inside[-1].end, end))
        self.count -= sum(run.end - run.first for run in inside)
        return inside

    def _remove_within(self, at: int, first: int, end: int) -> Run:
        """The same where only one run has any of these."""
        run_first, run_end = self._firsts[at], self._ends[at]
        removed = Run(max(first, run_first), min(end, run_end))
        self.count -= removed.end - removed.first
        if run_first < removed.first:
            self._ends[at] = removed.first
            if removed.end < run_end:
                self._firsts.insert(at + 1, removed.end)
                self._ends.insert(at + 1, run_end)
        elif removed.end < run_end:
            self._firsts[at] = removed.end
        else:
            del self._firsts[at], self._ends[at]
        return removed

    def lowest(self, number_max: int, before: int) -> list[Run]:
        """Take out the lowest ones, as many as this at most."""
        taken: list[Run] = []
        while number_max > 0 and self._firsts and self._firsts[0] < before:
            first = self._firsts[0]
            end = min(self._ends[0], before, first + number_max)
            taken.append(self._remove_within(0, first, end))
            number_max -= end - first
        return taken

    def covers(self, first: int, end: int) -> bool:
        """Whether all of these are there."""
        return self.missing(first, end) == end

    def missing(self, first: int, end: int) -> int:
        """The lowest of these that is not there, or `end`."""
        at = bisect_right(self._firsts, first) - 1
        if at < 0 or self._ends[at] <= first:
            return min(first, end)
        return min(self._ends[at], end)

    def gaps(self, first: int, end: int) -> list[Run]:
        """Those of these that are not there."""
        found: list[Run] = []
        at = bisect_right(self._ends, first)
        while first < end:
            inside = at < len(self._firsts)
            until = min(self._firsts[at], end) if inside else end
            if first < until:
                found.append(Run(first, until))
            first = self._ends[at] if inside else end
            at += 1
        return found
