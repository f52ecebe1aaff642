"""
An event loop whose clock is a number: sleeping costs nothing, and the same program does the same every time.

The shipping code runs on it unchanged. When nothing is ready the clock jumps to the next timer; when there is none
either, everybody waits for something that will never come, and that is said.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from typing_extensions import override

Result = TypeVar("Result")


class Stuck(AssertionError):
    """Every task waits, and no timer is set."""


class _Selector(selectors.BaseSelector):
    """Waits for no file: it moves the clock instead."""

    def __init__(self) -> None:
        self.loop: VirtualLoop | None = None
        self._map: dict[Any, selectors.SelectorKey] = {}

    @override
    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(
            fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data
        )
        self._map[fileobj] = key
        return key

    @override
    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._map.pop(fileobj)

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert self.loop is not None
        if timeout is None:
            raise Stuck("everybody waits for something that will never come")
        self.loop.now_s += max(timeout, 0)
        return []

    @override
    def get_map(self) -> Any:
        return self._map


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop."""

    def __init__(self) -> None:
        self.now_s = 0.0
        selector = _Selector()
        super().__init__(selector)
        selector.loop = self

    @override
    def time(self) -> float:
        return self.now_s


def run(body: Coroutine[Any, Any, Result]) -> Result:
    """Run a program to its end in virtual time; what it leaves running is cancelled."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(body)
    finally:
        rest = asyncio.all_tasks(loop)
        for task in rest:
            task.cancel()
        if rest:
            loop.run_until_complete(asyncio.wait(rest))
        loop.close()
