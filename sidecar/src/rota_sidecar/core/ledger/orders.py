"""
Orderings of one partition: the next records to dispatch, and the records in flight. Used by `ledger`.

`InOrder` dispatches by offset; many records may be in flight, and the application processes them from the first one on. `Lanes`
is for parallel processing: a lane for each key, whose records are processed one after the other, or a lane for each record. Both have
the same methods. All numbers are indexes, see `record_buffer.py`; ranges end before `end`.
"""

from collections import deque
from collections.abc import Collection

from rota_sidecar.core.ledger.record_buffer import RecordBuffer
from rota_sidecar.core.ledger.runs import Run, Runs


class InOrder:
    """Invariant: a record that is dispatched lies behind all that are in flight. Costs grow with runs, not with records."""

    def __init__(self, buffer: RecordBuffer, *, takes_many: bool) -> None:
        self._buffer = buffer
        self._takes_many = takes_many
        self._in_flight = Runs()
        # Records to dispatch again.
        self._returned = Runs()
        self._fresh = 0
        # Time in ms since which the application works on the first record: its dispatch, or the verdict before it.
        self._since_ms = 0

    @property
    def in_flight(self) -> int:
        """Return the number of records that the application holds."""
        return self._in_flight.count

    @property
    def lanes_busy(self) -> int:
        """Return the number of records that the application may be processing at the same time."""
        return 1 if self._in_flight else 0

    @property
    def in_flight_since_ms(self) -> int | None:
        """Return the time in ms since which the application works on its oldest record; None: no record is in flight."""
        return self._since_ms if self._in_flight else None

    @property
    def fresh(self) -> int:
        """Return the lowest index that was never dispatched."""
        return self._fresh

    def is_fresh(self, index: int) -> bool:
        """Return True if this record was never dispatched."""
        return index >= self._fresh

    def is_ready(self, before: int, lanes_max: int) -> bool:
        """Return True if a record before `before` may be dispatched with `lanes_max` free lanes."""
        is_busy = bool(self._in_flight)
        if is_busy and not self._takes_many:
            return False
        return (is_busy or lanes_max > 0) and self._next() < before

    def _next(self) -> int:
        return self._returned.first if self._returned else self._fresh

    def pick(self, before: int, records_max: int, lanes_max: int, now_ms: int) -> list[Run]:
        """Mark the next records as in flight, and return them as runs in ascending order."""
        if not self.is_ready(before, lanes_max):
            return []
        left = records_max if self._takes_many else min(records_max, 1)
        picked: list[Run] = []
        if self._returned:
            picked = self._returned.lowest(left, before)
            left -= sum(run.end - run.first for run in picked)
        end = min(before, self._fresh + left)
        if end > self._fresh:
            picked.append(Run(self._fresh, end))
            self._buffer.mark_dispatched(self._fresh, end)
            self._fresh = end
        for run in picked:
            self._mark_in_flight(run, now_ms)
        return picked

    def _mark_in_flight(self, run: Run, now_ms: int) -> None:
        if not self._in_flight:
            self._since_ms = now_ms
        self._in_flight.add(run.first, run.end)

    def isolated_record(self, isolated_records: Collection[int], before: int) -> int | None:
        """Return which of these isolated records is to be dispatched now, before others are."""
        return (
            self._returned.first
            if self._returned and self._returned.first < before and self._returned.first in isolated_records
            else None
        )

    def pick_isolated(self, index: int, now_ms: int) -> None:
        """Mark this isolated record as in flight."""
        self._returned.remove(index, index + 1)
        self._mark_in_flight(Run(index, index + 1), now_ms)

    def missing(self, first: int, end: int) -> int:
        """Return the lowest index of the range that is not in flight, or `end`."""
        return self._in_flight.missing(first, end)

    def leave(self, first: int, end: int, now_ms: int) -> None:
        """Mark the range as not in flight: the application has given its verdict."""
        if first <= self._in_flight.first:
            self._since_ms = now_ms
        self._in_flight.remove(first, end)

    def call_back(self, index: int) -> None:
        """Take back the records that must not overtake this one, which is delivered again; they are delivered again too."""
        for run in self._in_flight.remove(index, self._fresh):
            self._returned.add(run.first, run.end)

    def again(self, index: int) -> None:
        """Make this record ready for another delivery."""
        self._returned.add(index, index + 1)

    def finish(self, first: int, end: int) -> None:
        """Mark the range as done, and make records ready that waited for it."""
        return

    def pass_over(self, index: int, now_ms: int) -> None:
        """Forget all records before this index: they are about to be done."""
        if self._in_flight.remove(0, index):
            self._since_ms = now_ms
        self._returned.remove(0, index)
        if index > self._fresh:
            self._buffer.mark_dispatched(self._fresh, index)
            self._fresh = index

    def maybe_started(self) -> list[int]:
        """Return the indexes that the application may have been working on, in ascending order."""
        return [self._in_flight.first] if self._in_flight else []

    def return_all(self) -> None:
        """Take all records back; all of them are delivered again."""
        self.call_back(0)


class Lanes:
    """
    Lanes of one partition. Invariant: at most one record of a lane is in flight.

    A record without a key has its own lane; with `keyed` False, each record has.
    """

    def __init__(self, buffer: RecordBuffer, *, keyed: bool) -> None:
        self._buffer = buffer
        self._keyed = keyed
        # Time in ms of each record's dispatch, by index.
        self._in_flight: dict[int, int] = {}
        # The same, oldest first; entries that are not in `_in_flight` are obsolete.
        self._times: deque[tuple[int, int]] = deque()
        # Records to dispatch: again, or because the record before them in their lane is done.
        self._ready = Runs()
        # By key: scanned records that are not done. Only the first one may be dispatched.
        self._lanes: dict[bytes, deque[int]] = {}
        # Those of them that were never dispatched.
        self._parked = Runs()
        # Index of the next record to scan.
        self._ahead = 0

    @property
    def in_flight(self) -> int:
        """Return the number of records that the application holds."""
        return len(self._in_flight)

    @property
    def lanes_busy(self) -> int:
        """Return the number of records that the application may be processing at the same time."""
        return len(self._in_flight)

    @property
    def in_flight_since_ms(self) -> int | None:
        """Return the time in ms since which the application works on its oldest record; None: no record is in flight."""
        self._forget_times()
        return self._times[0][0] if self._times else None

    def _forget_times(self) -> None:
        while self._times and self._in_flight.get(self._times[0][1]) != self._times[0][0]:
            self._times.popleft()

    @property
    def fresh(self) -> int:
        """Return the lowest index that was never dispatched."""
        return self._parked.first if self._parked else self._ahead

    def is_fresh(self, index: int) -> bool:
        """Return True if this record was never dispatched."""
        return index >= self._ahead or self._parked.covers(index, index + 1)

    def is_ready(self, before: int, lanes_max: int) -> bool:
        """Return True if a record before `before` may be dispatched with `lanes_max` free lanes."""
        return lanes_max > 0 and (self._ahead < before or (bool(self._ready) and self._ready.first < before))

    def pick(self, before: int, records_max: int, lanes_max: int, now_ms: int) -> list[Run]:
        """Mark the next records as in flight, and return them as runs in ascending order."""
        left = min(records_max, lanes_max)
        picked = self._ready.lowest(left, before)
        for run in picked:
            if self._parked:
                for fresh in self._parked.remove(run.first, run.end):
                    self._buffer.mark_dispatched(fresh.first, fresh.end)
            left -= run.end - run.first
        if left > 0 and self._ahead < before:
            found = (
                self._scan(before, left)
                if self._keyed
                else [Run(self._ahead, min(before, self._ahead + left))]
            )
            for run in found:
                self._buffer.mark_dispatched(run.first, run.end)
                self._ahead = max(self._ahead, run.end)
            picked += found
        for first, end in picked:
            for index in range(first, end):
                self._in_flight[index] = now_ms
                self._times.append((now_ms, index))
        return picked

    def _scan(self, before: int, left: int) -> list[Run]:
        """Scan records that were never scanned, until `left` of them may be dispatched."""
        found: list[Run] = []
        for index, key in self._buffer.keys(self._ahead, before):
            self._ahead = index + 1
            if not self._is_free(index, key):
                self._parked.add(index, index + 1)
                continue
            if found and found[-1].end == index:
                found[-1] = Run(found[-1].first, index + 1)
            else:
                found.append(Run(index, index + 1))
            left -= 1
            if not left:
                break
        return found

    def _is_free(self, index: int, key: bytes | None) -> bool:
        if key is None:
            return True
        lane = self._lanes.get(key)
        if lane is None:
            self._lanes[key] = deque((index,))
            return True
        lane.append(index)
        return False

    def isolated_record(self, isolated_records: Collection[int], before: int) -> int | None:
        """Return which of these isolated records is to be dispatched now, before others are."""
        return min(
            (each for each in isolated_records if each < before and self._ready.covers(each, each + 1)),
            default=None,
        )

    def pick_isolated(self, index: int, now_ms: int) -> None:
        """Mark this isolated record as in flight."""
        self._ready.remove(index, index + 1)
        self._in_flight[index] = now_ms
        self._times.append((now_ms, index))

    def missing(self, first: int, end: int) -> int:
        """Return the lowest index of the range that is not in flight, or `end`."""
        return next((index for index in range(first, end) if index not in self._in_flight), end)

    def leave(self, first: int, end: int, now_ms: int) -> None:
        """Mark the range as not in flight: the application has given its verdict."""
        for index in range(first, end):
            del self._in_flight[index]
        self._forget_times()

    def call_back(self, index: int) -> None:
        """Take back the records that must not overtake this one, which is delivered again; they are delivered again too."""
        return

    def again(self, index: int) -> None:
        """Make this record ready for another delivery."""
        self._ready.add(index, index + 1)

    def finish(self, first: int, end: int) -> None:
        """Mark the range as done, and make records ready that waited for it."""
        if not self._keyed:
            return
        for index, key in self._buffer.keys(first, end):
            if key is not None:
                self._advance(key, index + 1)

    def _advance(self, key: bytes, before: int) -> None:
        """Drop the part of the lane before that index, which is done, and make the next record ready."""
        lane = self._lanes[key]
        while lane and lane[0] < before:
            lane.popleft()
        if lane:
            self._ready.add(lane[0], lane[0] + 1)
        else:
            del self._lanes[key]

    def pass_over(self, index: int, now_ms: int) -> None:
        """Forget all records before this index: they are about to be done."""
        for each in [each for each in self._in_flight if each < index]:
            del self._in_flight[each]
        self._ready.remove(0, index)
        for run in self._parked.remove(0, index):
            self._buffer.mark_dispatched(run.first, run.end)
        if index > self._ahead:
            self._buffer.mark_dispatched(self._ahead, index)
            self._ahead = index
        for key in [key for key, lane in self._lanes.items() if lane[0] < index]:
            self._advance(key, index)

    def maybe_started(self) -> list[int]:
        """Return the indexes that the application may have been working on, in ascending order."""
        return sorted(self._in_flight)

    def return_all(self) -> None:
        """Take all records back; all of them are delivered again."""
        for index in self._in_flight:
            self._ready.add(index, index + 1)
        self._in_flight.clear()
        self._times.clear()


Order = InOrder | Lanes
