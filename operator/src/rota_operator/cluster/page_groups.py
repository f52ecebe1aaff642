"""
Views of all ConsumerGroups for the page of the operator, and what was recorded of them while this process leads.

`leading` runs it and reports changes; `page` opens a `VisibleGroups` for each reader. The leader has other work, so all of it is
bounded: a group is recorded every RECORD_EVERY_S, or within a second of a change, and its text is made once a second for all readers.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from rota_operator.cluster.queues import Key
from rota_operator.overview.recording import START, Cursor, GroupRecording
from rota_operator.overview.samples import PARTITIONS_MAX
from rota_operator.overview.view import GroupView
from rota_operator.page.documents import delta_text, group_text, joined
from rota_operator.page.server import Event

TICK_S = 1.0
RECORD_EVERY_S = 5.0
# Of a group's text, and between two events of a reader.
TEXT_VALID_MS = 1_000
# Groups that are recorded, their partitions with charts of their own, and changed owners of all of them: some 70 MiB (benchmarks.scrapes).
GROUPS_RECORDED_MAX = 500
PARTITIONS_RECORDED_MAX = 1_000
OWNERS_RECORDED_MAX = 80_000
# Groups that one reader sees.
GROUPS_SHOWN_MAX = 100


class Groups(Protocol):
    """The watched groups; `GroupWatches`."""

    @property
    def keys(self) -> Collection[Key]:
        """Return the watched ConsumerGroups."""
        ...

    def view(self, key: Key) -> GroupView | None:
        """Return the group's state now; None if it is not watched."""
        ...


class GroupText(NamedTuple):
    """A group as JSON, and when it was made."""

    at_ms: int
    text: str


class PageGroups:
    """
    Recordings and texts by ConsumerGroup; thread-confined to one event loop. Times are wall-clock milliseconds.

    Invariant: at most GROUPS_RECORDED_MAX recordings, which have samples of PARTITIONS_RECORDED_MAX partitions altogether, and
    OWNERS_RECORDED_MAX changed owners, unless each has a single change left.
    """

    def __init__(self, groups: Groups, wall_ms: Callable[[], int]) -> None:
        self._groups = groups
        self._wall_ms = wall_ms
        self._recordings: dict[Key, GroupRecording] = {}
        # Partitions with samples.
        self._partitions: dict[Key, int] = {}
        # Changed owners of all recordings.
        self._owners = 0
        self._due_ms: dict[Key, int] = {}
        self._texts: dict[Key, GroupText] = {}

    @property
    def keys(self) -> Sequence[Key]:
        """Return all ConsumerGroups, sorted."""
        return sorted(self._groups.keys)

    def changed(self, key: Key) -> None:
        """Record a group at the next tick: more than its numbers have changed."""
        self._due_ms[key] = 0

    async def run(self) -> None:
        """Record all groups until cancelled."""
        while True:
            await self.record_due()
            await asyncio.sleep(TICK_S)

    async def record_due(self) -> None:
        """Record the groups that are due, and forget those that are gone; others run between two groups."""
        for key in self.keys:
            now_ms = self._wall_ms()
            # A clock that was set back must not delay it.
            if not now_ms < self._due_ms.get(key, 0) <= now_ms + RECORD_EVERY_S * 1000:
                self._record(key, now_ms)
                await asyncio.sleep(0)
        gone = self._due_ms.keys() - set(self._groups.keys)
        for key in gone:
            if (recording := self._recordings.get(key)) is not None:
                self._owners -= recording.changed_owners
            for each in (self._due_ms, self._recordings, self._partitions, self._texts):
                each.pop(key, None)

    def _record(self, key: Key, now_ms: int) -> None:
        self._due_ms[key] = now_ms + int(RECORD_EVERY_S * 1000)
        if key not in self._recordings and len(self._recordings) >= GROUPS_RECORDED_MAX:
            return
        view = self._view(key)
        if view is None:
            return
        free = PARTITIONS_RECORDED_MAX - sum(self._partitions.values()) + self._partitions.get(key, 0)
        self._partitions[key] = min(free, PARTITIONS_MAX, len(view.partitions))
        recording = self._recordings.setdefault(key, GroupRecording(id_of(key)))
        self._owners -= recording.changed_owners
        recording.record(view, now_ms, self._partitions[key], OWNERS_RECORDED_MAX - self._owners)
        self._owners += recording.changed_owners

    def _view(self, key: Key) -> GroupView | None:
        """Return the view under the ConsumerGroup's name: two coordinators may have groups of one id."""
        view = self._groups.view(key)
        return None if view is None else replace(view, group_id=id_of(key))

    def text(self, key: Key) -> str | None:
        """Return the group as JSON, at most TEXT_VALID_MS old; None if it is not watched."""
        now_ms, known = self._wall_ms(), self._texts.get(key)
        if known is not None and 0 <= now_ms - known.at_ms < TEXT_VALID_MS:
            return known.text
        view = self._view(key)
        if view is None:
            return None
        self._texts[key] = GroupText(now_ms, group_text(view))
        return self._texts[key].text

    def recorded(self, key: Key, cursor: Cursor) -> tuple[str, Cursor] | None:
        """Return what was recorded after a cursor as JSON, and the next cursor; None: nothing is recorded of the group."""
        recording = self._recordings.get(key)
        if recording is None:
            return None
        delta = recording.since(cursor)
        return delta_text(delta), delta.cursor

    def now_ms(self) -> int:
        """Return the time."""
        return self._wall_ms()


class VisibleGroups:
    """The groups that one reader sees."""

    def __init__(self, groups: PageGroups, source: str, keys: Sequence[Key]) -> None:
        self._groups = groups
        self._source = source
        self._keys = keys[:GROUPS_SHOWN_MAX]
        self._left_out = len(keys) - len(self._keys)

    async def state(self) -> str:
        """Return the state as JSON."""
        return joined(self._groups.now_ms(), self._source, await self._texts(), self._left_out, None)

    async def event(self, cursors: Mapping[str, Cursor]) -> Event:
        """Return the state with what was recorded after the cursors."""
        recorded: list[str] = []
        following: dict[str, Cursor] = {}
        for key in self._keys:
            found = self._groups.recorded(key, cursors.get(id_of(key), START))
            if found is not None:
                recorded.append(found[0])
                following[id_of(key)] = found[1]
                # The first event of a large group has megabytes.
                await asyncio.sleep(0)
        texts = await self._texts()
        return Event(joined(self._groups.now_ms(), self._source, texts, self._left_out, recorded), following)

    async def wait_for_change(self) -> None:
        """Return after a second: as often texts are made."""
        await asyncio.sleep(TEXT_VALID_MS / 1000)

    async def _texts(self) -> Sequence[str]:
        found: list[str] = []
        for key in self._keys:
            if (text := self._groups.text(key)) is not None:
                found.append(text)
            await asyncio.sleep(0)
        return found


def id_of(key: Key) -> str:
    """Return the name of a ConsumerGroup, which is its group's id on the page."""
    return f"{key.namespace}/{key.name}"
