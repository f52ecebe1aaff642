"""The open WatchGroup calls by group. Admin calls register; slots report changes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from rota_proto.coordinator.v1.admin_pb2 import DescribedGroup

Describe = Callable[[str], Awaitable[DescribedGroup]]


@dataclass(slots=True)
class Watchers:
    """The open watches of each group."""

    _changed: dict[str, set[asyncio.Event]] = field(default_factory=dict)

    def changed(self, group_id: str) -> None:
        """Wake the watches of the group."""
        for event in self._changed.get(group_id, ()):
            event.set()

    async def watch(self, group_id: str, describe: Describe) -> AsyncIterator[DescribedGroup]:
        """
        Yield the group's description now, and again after each change.

        A slow watcher misses intermediate states, but always receives the latest one.
        """
        event = asyncio.Event()
        self._changed.setdefault(group_id, set()).add(event)
        last: DescribedGroup | None = None
        try:
            while True:
                event.clear()
                group = await describe(group_id)
                if group != last:
                    last = group
                    yield group
                await event.wait()
        finally:
            self._changed[group_id].discard(event)
            if not self._changed[group_id]:
                del self._changed[group_id]
