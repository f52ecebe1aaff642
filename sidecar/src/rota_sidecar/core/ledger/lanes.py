"""Parallel processing: a lane for each key, whose records are processed one after the other, or a lane for each record."""

from collections import deque
from collections.abc import Collection

from typing_extensions import override

from rota_sidecar.core.ledger.order import Order
from rota_sidecar.core.ledger.record_buffer import RecordBuffer
from rota_sidecar.core.ledger.runs import Run, Runs


class Lanes(Order):
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
    @override
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    @override
    def lanes_busy(self) -> int:
        return len(self._in_flight)

    @property
    @override
    def in_flight_since_ms(self) -> int | None:
        self._forget_times()
        return self._times[0][0] if self._times else None

    def _forget_times(self) -> None:
        while self._times and self._in_flight.get(self._times[0][1]) != self._times[0][0]:
            self._times.popleft()

    @property
    @override
    def fresh(self) -> int:
        return self._parked.first if self._parked else self._ahead

    @override
    def is_fresh(self, index: int) -> bool:
        return index >= self._ahead or self._parked.covers(index, index + 1)

    @override
    def is_ready(self, before: int, lanes_max: int) -> bool:
        return lanes_max > 0 and (self._ahead < before or (bool(self._ready) and self._ready.first < before))

    @override
    def pick(self, before: int, records_max: int, lanes_max: int, now_ms: int) -> list[Run]:
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

    @override
    def isolated_record(self, isolated_records: Collection[int], before: int) -> int | None:
        return min(
            (each for each in isolated_records if each < before and self._ready.covers(each, each + 1)),
            default=None,
        )

    @override
    def pick_isolated(self, index: int, now_ms: int) -> None:
        self._ready.remove(index, index + 1)
        self._in_flight[index] = now_ms
        self._times.append((now_ms, index))

    @override
    def missing(self, first: int, end: int) -> int:
        return next((index for index in range(first, end) if index not in self._in_flight), end)

    @override
    def leave(self, first: int, end: int, now_ms: int) -> None:
        for index in range(first, end):
            del self._in_flight[index]
        self._forget_times()

    @override
    def call_back(self, index: int) -> None:
        return

    @override
    def again(self, index: int) -> None:
        self._ready.add(index, index + 1)

    @override
    def finish(self, first: int, end: int) -> None:
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

    @override
    def pass_over(self, index: int, now_ms: int) -> None:
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

    @override
    def maybe_started(self) -> list[int]:
        return sorted(self._in_flight)

    @override
    def return_all(self) -> None:
        for index in self._in_flight:
            self._ready.add(index, index + 1)
        self._in_flight.clear()
        self._times.clear()
