"""
Watches the offsets of one group: about once a second committed offsets are fetched first, then log starts and ends, then the
timestamps of the first uncommitted records, and everything is published at once.

Committed offsets come first, so that records which arrive meanwhile count as lag, and never the other way round.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple

from rota_operator.engines.port import Groups, Range, Records, Unavailable
from rota_operator.overview.assignment import Partition
from rota_operator.overview.offsets import OFFSETS_VALID_MS, PartitionOffsets

POLL_INTERVAL_S = 1.0
# A slower poll is cancelled: its numbers would be outdated.
POLL_TIMEOUT_S = 4.0


class Subscription(NamedTuple):
    """Topics by name, or a regular expression that whole names match; an empty one matches none."""

    topics: Collection[str]
    pattern: str = ""


class OffsetWatch:
    """Polls the offsets of one group. Timestamps are read once per offset, because a record's timestamp does not change."""

    def __init__(
        self,
        group_id: str,
        subscription: Subscription,
        groups: Groups,
        records: Records,
        owned: Callable[[], Collection[Partition]],
    ) -> None:
        self._group_id = group_id
        self._subscription = subscription
        self._groups = groups
        self._records = records
        self._owned = owned
        # By partition: the first uncommitted offset, and the timestamp of the record there.
        self._timestamps: dict[Partition, tuple[int, int]] = {}

    async def poll(self) -> Mapping[Partition, PartitionOffsets]:
        """
        Offsets of all partitions that the group subscribes to, owns or has committed. Raises Unavailable.

        Partitions that do not exist any more are left out, whatever was committed there.
        """
        owned = self._owned()
        topics = {*self._subscription.topics, *(each.topic for each in owned)}
        there = {*await self._records.partitions(topics, self._subscription.pattern)}
        committed = await self._groups.committed(self._group_id, there)
        # Topics that are not subscribed to, and partitions that were added since the list was read.
        others = {each.topic for each in committed.keys() - there}
        there |= {*await self._records.partitions(others)}
        ranges = await self._records.ranges(there)
        firsts = {
            each: max(committed[each], found.start)
            for each, found in ranges.items()
            if each in committed and max(committed[each], found.start) < found.end
        }
        timestamps = await self._first_timestamps(firsts)
        return {each: _offsets(each, committed, ranges, timestamps) for each in {*there, *owned}}

    async def _first_timestamps(self, firsts: Mapping[Partition, int]) -> Mapping[Partition, int | None]:
        self._timestamps = {
            each: known for each, known in self._timestamps.items() if firsts.get(each) == known[0]
        }
        asked = {each: offset for each, offset in firsts.items() if each not in self._timestamps}
        found = await self._records.timestamps(asked)
        self._timestamps |= {
            each: (asked[each], timestamp) for each, timestamp in found.items() if timestamp is not None
        }
        return {**found, **{each: timestamp for each, (_, timestamp) in self._timestamps.items()}}


def _offsets(
    partition: Partition,
    committed: Mapping[Partition, int],
    ranges: Mapping[Partition, Range],
    timestamps: Mapping[Partition, int | None],
) -> PartitionOffsets:
    found = ranges.get(partition)
    timestamp_ms = timestamps.get(partition)
    return PartitionOffsets(
        committed=committed.get(partition),
        start=None if found is None else found.start,
        end=None if found is None else found.end,
        first_uncommitted_ms=timestamp_ms,
        markers_only=partition in timestamps and timestamp_ms is None,
    )


async def repeat(
    poll: Callable[[], Awaitable[None]],
    on_unknown: Callable[[str], None],
    interval_s: float = POLL_INTERVAL_S,
) -> None:
    """
    Poll about once in `interval_s` until cancelled.

    `on_unknown` is called with the reason, once, when the engine has not answered for so long that its last report has
    expired.
    """
    clock = asyncio.get_running_loop().time
    answered_s, is_known = clock(), True
    while True:
        try:
            async with asyncio.timeout(POLL_TIMEOUT_S):
                await poll()
            answered_s, is_known = clock(), True
        except (Unavailable, TimeoutError) as error:
            if is_known and clock() - answered_s > OFFSETS_VALID_MS / 1000:
                is_known = False
                on_unknown(str(error) or f"no answer within {POLL_TIMEOUT_S:g} s")
        await asyncio.sleep(interval_s)
