"""
Sets of integers, stored as runs of consecutive integers: costs grow with the number of runs, not of integers.

`write` and `read` have them as text in a commit's metadata: offsets completed ahead of the committed one. With parallel processing, records
may be done before earlier ones. After a clean stop the next owner must not dispatch them again, and only the commit can tell it.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Three bytes are four characters of base64, so that no padding is needed.
_GROUP_BITS = 24
_GROUPS_MAX = 1_000
# Limit of the span in offsets; later offsets are left out. Coordinators accept 4,096 characters.
SPAN_MAX = _GROUP_BITS * _GROUPS_MAX

# The first offset, and a bit for it and for each later one.
PATTERN = rf"[0-9]{{1,19}}:(?:[A-Za-z0-9_-]{{4}}){{1,{_GROUPS_MAX}}}"


class Run(NamedTuple):
    """Consecutive integers from `first` on, before `end`."""

    first: int
    end: int


class Runs:
    """A set of integers. Invariant: runs are in ascending order, and no two of them touch."""

    __slots__ = ("_count", "_ends", "_firsts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __iter__(self) -> Iterator[Run]:
        return map(Run, tuple(self._firsts), tuple(self._ends))

    @property
    def count(self) -> int:
        """Return the number of integers."""
        return self._count

    @property
    def first(self) -> int:
        """Return the lowest integer; the set must not be empty."""
        return self._firsts[0]

    @property
    def end(self) -> int:
        """Return the integer after the highest one; the set must not be empty."""
        return self._ends[-1]

    def add(self, first: int, end: int) -> None:
        """Add the range; parts of it may be in the set already."""
        low = bisect_left(self._ends, first)
        high = bisect_right(self._firsts, end)
        if low < high:
            first, end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
            self._count -= sum(self._ends[low:high]) - sum(self._firsts[low:high])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]
        self._count += end - first

    def remove(self, first: int, end: int) -> list[Run]:
        """Remove the range, and return the runs of it that were in the set."""
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
        self._count -= sum(run.end - run.first for run in inside)
        return inside

    def _remove_within(self, at: int, first: int, end: int) -> Run:
        """Remove the range from the one run that overlaps it."""
        run_first, run_end = self._firsts[at], self._ends[at]
        removed = Run(max(first, run_first), min(end, run_end))
        self._count -= removed.end - removed.first
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
        """Remove and return the lowest integers before `before`, at most `number_max`."""
        taken: list[Run] = []
        while number_max > 0 and self._firsts and self._firsts[0] < before:
            first = self._firsts[0]
            end = min(self._ends[0], before, first + number_max)
            taken.append(self._remove_within(0, first, end))
            number_max -= end - first
        return taken

    def covers(self, first: int, end: int) -> bool:
        """Return True if the whole range is in the set."""
        return self.missing(first, end) == end

    def missing(self, first: int, end: int) -> int:
        """Return the lowest integer of the range that is not in the set, or `end`."""
        at = bisect_right(self._firsts, first) - 1
        if at < 0 or self._ends[at] <= first:
            return min(first, end)
        return min(self._ends[at], end)

    def gaps(self, first: int, end: int) -> list[Run]:
        """Return the runs of the range that are not in the set."""
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


def write(runs: Sequence[Run]) -> str:
    """Encode runs of offsets, in ascending order; empty for no runs."""
    if not runs:
        return ""
    base, bits = runs[0].first, 0
    for run in runs:
        first, end = run.first - base, min(run.end - base, SPAN_MAX)
        if first >= SPAN_MAX:
            break
        bits |= ((1 << (end - first)) - 1) << first
    groups = -(-bits.bit_length() // _GROUP_BITS)
    encoded = urlsafe_b64encode(bits.to_bytes(groups * _GROUP_BITS // 8, "little"))
    return f"{base}:{encoded.decode()}"


def read(text: str) -> Runs:
    """Decode the text that `write` made."""
    runs = Runs()
    if text:
        base, _, encoded = text.partition(":")
        bits = int.from_bytes(urlsafe_b64decode(encoded), "little")
        for found in re.finditer("1+", f"{bits:b}"[::-1]):
            runs.add(int(base) + found.start(), int(base) + found.end())
    return runs
