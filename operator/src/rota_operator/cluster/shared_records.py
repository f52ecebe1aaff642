"""
Lookups in a coordinator's log, shared by the groups whose records are there: hundreds of groups are polled with a few requests.

`groups` makes one `SharedRecords` for each coordinator and isolation level, whose groups' polls call it.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping

from typing_extensions import override

from rota_operator.cluster.batches import Batches
from rota_operator.engines.port import Range, Records
from rota_operator.overview.assignment import Partition

# Seconds that a lookup waits for others: short beside the interval of the polls.
WINDOW_S = 0.1


class SharedRecords(Records):
    """Topics of one embedded log for several groups, which all read at one isolation level."""

    def __init__(self, records: Records, window_s: float = WINDOW_S) -> None:
        self._records = records
        self._topics = Batches(self._partitions_by_topic, window_s)
        self._ranges = Batches(self._ranges_of, window_s)

    @override
    async def partitions(self, topics: Collection[str], pattern: str = "") -> Collection[Partition]:
        if pattern:
            return await self._records.partitions(topics, pattern)
        if not topics:
            return ()
        found = await self._topics.get(None, topics)
        return [partition for each in found.values() for partition in each]

    @override
    async def ranges(self, partitions: Collection[Partition]) -> Mapping[Partition, Range]:
        return await self._ranges.get(None, partitions) if partitions else {}

    @override
    async def timestamps(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, int | None]:
        return await self._records.timestamps(offsets) if offsets else {}

    async def _ranges_of(self, _: None, partitions: Collection[Partition]) -> Mapping[Partition, Range]:
        return await self._records.ranges(partitions)

    async def _partitions_by_topic(
        self, _: None, topics: Collection[str]
    ) -> Mapping[str, Collection[Partition]]:
        found: dict[str, list[Partition]] = defaultdict(list)
        for each in await self._records.partitions(topics):
            found[each.topic].append(each)
        return found
