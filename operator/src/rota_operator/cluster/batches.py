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
        # By lane: what the next request asks for, and its task, which returns what the request has raised: kopf would end with the
        # error of any task that goes on when it ends, also of one that nothing waits for any more.
        self._next: dict[Lane, tuple[set[Asked], asyncio.Task[Mapping[Asked, Found] | Exception]]] = {}

    async def get(self, lane: Lane, asked: Collection[Asked]) -> Mapping[Asked, Found]:
        """Look something up together with others of the lane; what does not exist is left out. Raises what the request does."""
        if lane not in self._next:
            self._next[lane] = set(), asyncio.create_task(self._send(lane))
        together, task = self._next[lane]
        together.update(asked)
        # One that is cancelled does not take the answer from the others.
        found = await asyncio.shield(task)
        if isinstance(found, Exception):
            raise found
        return {each: found[each] for each in asked if each in found}

    async def _send(self, lane: Lane) -> Mapping[Asked, Found] | Exception:
        await asyncio.sleep(self._window_s)
        asked, _ = self._next.pop(lane)
        try:
            return await self._look_up(lane, asked)
        except Exception as error:  # noqa: BLE001  raised to those that wait
            return error
