"""Ordering by offset: many records may be in flight, and the application processes them from the first one on."""

from collections.abc import Collection

from typing_extensions import override

from rota_sidecar.core.ledger.order import Order
from rota_sidecar.core.ledger.record_buffer import RecordBuffer
from rota_sidecar.core.ledger.runs import Run, Runs


class InOrder(Order):
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
    @override
    def in_flight(self) -> int:
        return self._in_flight.count

    @property
    @override
    def lanes_busy(self) -> int:
        return 1 if self._in_flight else 0

    @property
    @override
    def in_flight_since_ms(self) -> int | None:
        return self._since_ms if self._in_flight else None

    @property
    @override
    def fresh(self) -> int:
        return self._fresh

    @override
    def is_fresh(self, index: int) -> bool:
        return index >= self._fresh

    @override
    def is_ready(self, before: int, lanes_max: int) -> bool:
        if self._in_flight and not self._takes_many:
            return False
        return lanes_max + self.lanes_busy > 0 and self._next() < before

    def _next(self) -> int:
        return self._returned.first if self._returned else self._fresh

    @override
    def pick(self, before: int, records_max: int, lanes_max: int, now_ms: int) -> list[Run]:
        if not self.is_ready(before, lanes_max):
            return []
        left = records_max if self._takes_many else min(records_max, 1)
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

    @override
    def isolated_record(self, isolated_records: Collection[int], before: int) -> int | None:
        return (
            self._returned.first
            if self._returned and self._returned.first < before and self._returned.first in isolated_records
            else None
        )

    @override
    def pick_isolated(self, index: int, now_ms: int) -> None:
        self._returned.remove(index, index + 1)
        self._mark_in_flight(Run(index, index + 1), now_ms)

    @override
    def missing(self, first: int, end: int) -> int:
        return self._in_flight.missing(first, end)

    @override
    def leave(self, first: int, end: int, now_ms: int) -> None:
        if first <= self._in_flight.first:
            self._since_ms = now_ms
        self._in_flight.remove(first, end)

    @override
    def call_back(self, index: int) -> None:
        for run in self._in_flight.remove(index, self._fresh):
            self._returned.add(run.first, run.end)

    @override
    def again(self, index: int) -> None:
        self._returned.add(index, index + 1)

    @override
    def finish(self, first: int, end: int) -> None:
        return

    @override
    def pass_over(self, index: int, now_ms: int) -> None:
        if self._in_flight.remove(0, index):
            self._since_ms = now_ms
        self._returned.remove(0, index)
        if index > self._fresh:
            self._buffer.mark_dispatched(self._fresh, index)
            self._fresh = index

    @override
    def maybe_started(self) -> list[int]:
        return [self._in_flight.first] if self._in_flight else []

    @override
    def return_all(self) -> None:
        self.call_back(0)
