"""
Looks up offsets for a reset, and sets those of a group without members, at the group's engines.

Called by `planning` and `execution`. `EngineSource` asks the engines itself; the operator in a cluster has another source, which asks a
sidecar where the operator has no credentials.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Protocol, TypeAlias

from typing_extensions import override

from rota_operator.engines.port import Groups, IndexedRecords
from rota_operator.engines.watch import Subscription
from rota_operator.overview.assignment import Partition
from rota_operator.resets.orders import Offsets
from rota_operator.resets.plan import Plan
from rota_operator.resets.targets import LogRange, Lookup, topics_of

# Sets offsets of a group without members; raises Unavailable, also if the group has any.
SetOffsets: TypeAlias = Callable[[Offsets], Awaitable[None]]


class OffsetSource(Protocol):
    """Offsets of one group and its topics. Every method raises Unavailable."""

    async def ranges(self) -> Mapping[Partition, LogRange]:
        """Return the log ranges of all partitions that the group consumes."""
        ...

    async def committed(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the committed offsets of these partitions, as far as there are any."""
        ...

    async def at_time(self, partitions: Collection[Partition], at_ms: int) -> Mapping[Partition, int]:
        """Return the first offsets at or after a time; absent or negative: there is none."""
        ...

    async def timestamps(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, int | None]:
        """Return the timestamps of the records at these offsets, as far as the source can tell them."""
        ...

    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return the ids of the topics, as far as the source can tell them."""
        ...

    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets of a group without members; refused while it has any."""
        ...


class EngineSource(OffsetSource):
    """A group whose engines are asked directly: its coordinator or brokers for commits, its log or brokers for records."""

    def __init__(
        self,
        group_id: str,
        subscription: Subscription,
        groups: Groups,
        records: IndexedRecords,
        set_offsets: SetOffsets,
    ) -> None:
        self._group_id = group_id
        self._subscription = subscription
        self._groups = groups
        self._records = records
        self._set_offsets = set_offsets

    @override
    async def ranges(self) -> Mapping[Partition, LogRange]:
        partitions = await self._records.partitions(self._subscription.topics, self._subscription.pattern)
        found = await self._records.ranges(partitions)
        return {each: LogRange(*at) for each, at in found.items()}

    @override
    async def committed(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        found = await self._groups.committed(self._group_id, partitions, only_these=True)
        return {each: found[each] for each in partitions if each in found}

    @override
    async def at_time(self, partitions: Collection[Partition], at_ms: int) -> Mapping[Partition, int]:
        return await self._records.at_time(partitions, at_ms)

    @override
    async def timestamps(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, int | None]:
        return await self._records.timestamps(offsets)

    @override
    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return await self._records.topic_ids(topics)

    @override
    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        await self._set_offsets(offsets)


def topics_in(plan: Plan) -> tuple[str, ...]:
    """Return the topics of a plan."""
    return tuple(dict.fromkeys(row.partition.topic for row in plan.rows))


async def look_up(source: OffsetSource, group_id: str, topics: tuple[str, ...]) -> Lookup:
    """Look up what a plan needs; no topics: all that the group consumes. Raises ResetRefused, Unavailable."""
    everything = await source.ranges()
    chosen = set(topics_of(topics, {each.topic for each in everything}))
    ranges = {each: at for each, at in everything.items() if each.topic in chosen}
    committed = await source.committed(ranges.keys())
    return Lookup(group_id, ranges, committed, topic_ids=await source.topic_ids(chosen))


async def with_times(source: OffsetSource, plan: Plan) -> Plan:
    """Add the timestamps of the records at the old and at the new offsets, as far as the source can tell them."""
    old = await source.timestamps({row.partition: row.old for row in plan.rows if row.old is not None})
    new = await source.timestamps(plan.offsets)
    return await asyncio.to_thread(_with, plan, old, new) if old or new else plan


def _with(plan: Plan, old: Mapping[Partition, int | None], new: Mapping[Partition, int | None]) -> Plan:
    """Return the plan with timestamps in ms."""
    rows = tuple(
        replace(row, old_time_ms=old.get(row.partition), new_time_ms=new.get(row.partition))
        for row in plan.rows
    )
    return replace(plan, rows=rows)
