"""Records between a consumer's core and the application's hands. The engine keeps one."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from rota.consumer.core import Core
from rota.consumer.portions import Portion

Give = Callable[[list[Portion]], object]


class _Waiting(NamedTuple):
    step: int
    records_max: int
    give: Give


class Taking:
    """What is on the way counts as returned only when it has arrived: whoever waits for it may be interrupted."""

    def __init__(self, core: Core, room: asyncio.Event) -> None:
        self._core = core
        # Set when there may be more room for records.
        self._room = room
        self._steps = 0
        self._on_the_way: list[Portion] = []
        self._waiting: _Waiting | None = None
        # The last step that was given records while it waited.
        self._given = 0

    def begin(self) -> int:
        """The application asks for more: the number of that step. It hears nothing of the steps before."""
        self._steps += 1
        self._waiting = None
        return self._steps

    def is_heard(self, step: int) -> bool:
        """Whether anybody still waits for it. If not, it must take nothing: what it took would count as returned."""
        return step == self._steps

    def take(self, records_max: int) -> list[Portion]:
        """The next records; none when none are there."""
        taken = self._core.take(records_max)
        if taken:
            self._room.set()
            self._on_the_way = taken
        return taken

    def wait(self, records_max: int, give: Give) -> None:
        """`give` is called with records in the turn of the loop in which they come, once."""
        self._waiting = _Waiting(self._steps, records_max, give)

    def came(self) -> None:
        """There may be records now."""
        if self._waiting is None or self._core.due() is not None:
            return
        if taken := self.take(self._waiting.records_max):
            give, self._waiting = self._waiting.give, None
            self._given = self._steps
            give(taken)

    def stop(self, step: int) -> bool:
        """Its `give` is not called any more; whether it was."""
        if self._waiting is not None and self._waiting.step == step:
            self._waiting = None
        return self._given == step

    def arrived(self) -> None:
        """What the last step gave is in the application's hands. An interrupt between the two must not count as that."""
        self._on_the_way = []

    def settle(self, portion: Portion | None = None, offset: int = 0) -> None:
        """What has not arrived was not returned; nor was what was taken of this portion from this offset on."""
        for each in reversed(self._on_the_way):
            self._core.put_back(each, each.base_offset)
        self._on_the_way = []
        if portion is not None and offset < portion.next_offset:
            self._core.put_back(portion, offset)
