"""The open WatchGroup calls by group. Admin calls register; slots report changes, and that they begin or end to be served."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from rota_coordinator.core.group.hashing import slot_of
from rota_coordinator.core.slots.table import SLOTS
from rota_proto.coordinator.v1.admin_pb2 import DescribedGroup

Describe = Callable[[str], Awaitable[DescribedGroup]]


@dataclass(slots=True)
class Watchers:
    """The open watches of each group. Invariant: `_by_slot` has the groups of `_changed`, and no others."""

    # Number of slots of the store.
    slots: int = SLOTS
    _changed: dict[str, set[asyncio.Event]] = field(default_factory=dict)
    _by_slot: dict[int, set[str]] = field(default_factory=dict)

    def changed(self, group_id: str) -> None:
        """Wake the watches of the group."""
        for event in self._changed.get(group_id, ()):
            event.set()

    def slot_changed(self, slot: int) -> None:
        """Wake the watches of all groups of the slot, of those that do not exist too."""
        for group_id in self._by_slot.get(slot, ()):
            self.changed(group_id)

    async def watch(self, group_id: str, describe: Describe) -> AsyncIterator[DescribedGroup]:
        """
        Yield the group's description now, and again after each change.

        A slow watcher misses intermediate states, but always receives the latest one.
        """
        event, slot = asyncio.Event(), slot_of(group_id, self.slots)
        self._changed.setdefault(group_id, set()).add(event)
        self._by_slot.setdefault(slot, set()).add(group_id)
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
                self._by_slot[slot].discard(group_id)
