"""
Looks up and sets offsets of a group without members at its Kafka cluster, with credentials of the operator's own.

Opened by `reset_lookups`; imports librdkafka, which is slow and optional.
"""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

from typing_extensions import override

from rota_operator.cluster.group_watch import ResetAccess
from rota_operator.cluster.reset_lookups import OffsetSource
from rota_operator.engines.admin import alter_offsets
from rota_operator.engines.kafka import KafkaGroups, KafkaRecords
from rota_operator.engines.rota import RotaGroups
from rota_operator.overview.assignment import Partition
from rota_operator.resets.targets import LogRange


class KafkaSource(OffsetSource):
    """A group whose records are in Kafka; open while `kafka_source` is entered."""

    def __init__(self, access: ResetAccess, records: KafkaRecords, groups: KafkaGroups) -> None:
        self._watched = access.watched
        self._coordinator = access.coordinator
        self._records = records
        self._groups = groups

    @override
    async def ranges(self) -> Mapping[Partition, LogRange]:
        partitions = await self._records.partitions(self._watched.topics, self._watched.topic_pattern)
        found = await self._records.ranges(partitions)
        return {each: LogRange(*at) for each, at in found.items()}

    @override
    async def committed(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        groups = self._groups if self._coordinator is None else RotaGroups(self._coordinator)
        found = await groups.committed(self._watched.group_id, partitions)
        return {each: found[each] for each in partitions if each in found}

    @override
    async def at_time(self, partitions: Collection[Partition], at_ms: int) -> Mapping[Partition, int]:
        return await self._records.at_time(partitions, at_ms)

    @override
    async def timestamps(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, int | None]:
        return await self._records.timestamps(offsets)

    @override
    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {}

    @override
    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        if self._coordinator is None:
            await self._groups.commit(offsets)
        else:
            await alter_offsets(self._coordinator, self._watched.group_id, offsets)


@asynccontextmanager
async def kafka_source(access: ResetAccess) -> AsyncIterator[KafkaSource]:
    """Open clients for a group that the operator has credentials for. Raises Unavailable."""
    properties = dict(access.watched.access.properties)
    records = KafkaRecords(properties, read_committed=access.watched.read_committed)
    groups = KafkaGroups(access.watched.group_id, properties)
    try:
        yield KafkaSource(access, records, groups)
    finally:
        await groups.close()
        await records.close()
