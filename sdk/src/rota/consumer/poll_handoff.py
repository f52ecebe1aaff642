"""Handoff of records from a consumer's core to the application's thread. Owned by the engine."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from rota.consumer.batch_slice import BatchSlice
from rota.consumer.core import Core

OnRecords = Callable[[list[BatchSlice]], object]


class _Waiter(NamedTuple):
    step: int
    records_max: int
    give: OnRecords


class PollHandoff:
    """Invariant: records count as returned only after `confirm`; the waiting thread may be interrupted before."""

    def __init__(self, core: Core, room: asyncio.Event) -> None:
        self._core = core
        # Set when the buffer may have more room for records.
        self._room = room
        self._steps = 0
        self._unconfirmed: list[BatchSlice] = []
        self._waiting: _Waiter | None = None
        # The last step that got records while it waited.
        self._served = 0

    def begin(self) -> int:
        """Begin a step and return its number; earlier steps get no records any more."""
        self._steps += 1
        self._waiting = None
        return self._steps

    def is_current(self, step: int) -> bool:
        """Return whether this step is the newest; an older one must take nothing, as its records would be lost."""
        return step == self._steps

    def take(self, records_max: int) -> list[BatchSlice]:
        """Take the next records; empty if none are buffered."""
        taken = self._core.take(records_max)
        if taken:
            self._room.set()
            self._unconfirmed = taken
        return taken

    def wait(self, records_max: int, give: OnRecords) -> None:
        """Wait for records: `give` is called once, in the loop iteration in which they arrive."""
        self._waiting = _Waiter(self._steps, records_max, give)

    def on_records(self) -> None:
        """Serve the waiting step from the buffer."""
        if self._waiting is None or self._core.next_rebalance() is not None:
            return
        if taken := self.take(self._waiting.records_max):
            give, self._waiting = self._waiting.give, None
            self._served = self._steps
            give(taken)

    def cancel(self, step: int) -> bool:
        """Cancel the wait; return whether it was active."""
        if self._waiting is not None and self._waiting.step == step:
            self._waiting = None
        return self._served == step

    def confirm(self) -> None:
        """Count the last step's records as returned: the application has received them."""
        self._unconfirmed = []

    def rewind(self, batch_slice: BatchSlice | None = None, offset: int = 0) -> None:
        """Put unconfirmed records back, and those of this slice from this offset on."""
        for each in reversed(self._unconfirmed):
            self._core.put_back(each, each.base_offset)
        self._unconfirmed = []
        if batch_slice is not None and offset < batch_slice.next_offset:
            self._core.put_back(batch_slice, offset)
