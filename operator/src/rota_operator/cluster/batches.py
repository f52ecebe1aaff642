"""
Combines lookups that are made at about the same time into one request. Used by `shared_reads` and `shared_records`.

A lookup waits a moment for others and is sent with them, so it is always sent after it was asked for, as a request of its own would
be: nothing is remembered.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from typing import Generic, TypeVar

Lane = TypeVar("Lane", bound=Hashable)
Asked = TypeVar("Asked", bound=Hashable)
Found = TypeVar("Found")


class Batches(Generic[Lane, Asked, Found]):
    """
    Combines lookups of one lane, which fail together; thread-confined to one event loop.

    Invariant: a lookup is part of exactly one request, which is sent about `window_s` after it and never before it.
    """

    def __init__(
        self, look_up: Callable[[Lane, Collection[Asked]], Awaitable[Mapping[Asked, Found]]], window_s: float
    ) -> None:
        self._look_up = look_up
        self._window_s = window_s
        # By lane: what the next request asks for, and its task.
        self._next: dict[Lane, tuple[set[Asked], asyncio.Task[Mapping[Asked, Found]]]] = {}

    async def get(self, lane: Lane, asked: Collection[Asked]) -> Mapping[Asked, Found]:
        """Look something up together with others of the lane; what does not exist is left out. Raises what the request does."""
        if lane not in self._next:
            task = asyncio.create_task(self._send(lane))
            task.add_done_callback(_retrieve)
            self._next[lane] = set(), task
        together, task = self._next[lane]
        together.update(asked)
        # One that is cancelled does not take the answer from the others.
        found = await asyncio.shield(task)
        return {each: found[each] for each in asked if each in found}

    async def _send(self, lane: Lane) -> Mapping[Asked, Found]:
        await asyncio.sleep(self._window_s)
        asked, _ = self._next.pop(lane)
        return await self._look_up(lane, asked)


def _retrieve(task: "asyncio.Task[Mapping[Asked, Found]]") -> None:
    """Take the error of a request even if all that wait for it have been cancelled."""
    if not task.cancelled():
        task.exception()
