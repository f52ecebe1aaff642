"""
Opens the source of a group's offsets for a reset: Rota's coordinator and log, a sidecar, or Kafka brokers.

Called by `reset_execution`. The operator has no credentials of its users' Kafka clusters, so a group whose records are in Kafka is looked
up by one of its connected sidecars, or, without members, with credentials of the operator's own.
"""

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeAlias

from typing_extensions import override

from rota_operator.cluster.group_watch import ResetAccess
from rota_operator.cluster.offset_queries import query_offsets
from rota_operator.cluster.queues import Key
from rota_operator.cluster.settings_orders import Fleet, key_of
from rota_operator.engines.admin import alter_offsets
from rota_operator.engines.port import Unavailable
from rota_operator.engines.rota import RotaGroups, RotaRecords
from rota_operator.engines.watch import Subscription
from rota_operator.fleet.principal import SidecarRef
from rota_operator.offset_resets.sources import EngineSource, OffsetSource
from rota_operator.overview.assignment import Partition
from rota_operator.resets.targets import LogRange
from rota_proto.fleet.v1 import fleet_pb2 as pb

# That one query names.
PARTITIONS_MAX = 2_000
NOT_WATCHED = "the group is not watched yet"
NO_MEMBER = "no sidecar of the group is connected, which could look up offsets in Kafka; start one, or reset the offsets with `rota groups reset`"


class SidecarSource(OffsetSource):
    """A group whose records are in Kafka, looked up by one of its sidecars."""

    def __init__(self, fleet: Fleet, sidecar: SidecarRef, access: ResetAccess) -> None:
        self._fleet = fleet
        self._sidecar = sidecar
        self._access = access

    @override
    async def ranges(self) -> Mapping[Partition, LogRange]:
        # The start first: records that are deleted between the two queries must not put it after the end.
        starts = await self._bounds(pb.OFFSET_KIND_START)
        ends = await self._bounds(pb.OFFSET_KIND_END)
        return {each: LogRange(start, ends[each]) for each, start in starts.items() if each in ends}

    async def _bounds(self, what: pb.OffsetKind.ValueType) -> Mapping[Partition, int]:
        """Look up all that the group consumes."""
        return self._offsets(await self._order(pb.QueryOffsets(what=what)))

    @override
    async def committed(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        return await self._ask_some(partitions, pb.OFFSET_KIND_COMMITTED)

    @override
    async def at_time(self, partitions: Collection[Partition], at_ms: int) -> Mapping[Partition, int]:
        return await self._ask_some(partitions, pb.OFFSET_KIND_TIMESTAMP, at_ms)

    @override
    async def timestamps(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, int | None]:
        return {}

    @override
    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        ordered = sorted(topics)
        found: dict[str, str] = {}
        for first in range(0, len(ordered), PARTITIONS_MAX):
            # Of one partition each: the ids are those of the topics.
            some = [Partition(topic, 0) for topic in ordered[first : first + PARTITIONS_MAX]]
            answer = await self._answer(some, pb.OFFSET_KIND_START)
            found |= {each.topic: each.topic_id.hex() for each in answer.topic_ids}
        return found

    @override
    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        if self._access.coordinator is None:
            raise Unavailable(
                "the group has members, which commit the offsets of their partitions themselves"
            )
        await alter_offsets(self._access.coordinator, self._access.watched.group_id, offsets)

    async def _ask_some(
        self, partitions: Collection[Partition], what: pb.OffsetKind.ValueType, at_ms: int = 0
    ) -> Mapping[Partition, int]:
        ordered = sorted(partitions)
        found: dict[Partition, int] = {}
        for first in range(0, len(ordered), PARTITIONS_MAX):
            found |= await self._ask(ordered[first : first + PARTITIONS_MAX], what, at_ms)
        return found

    async def _ask(
        self, partitions: Sequence[Partition], what: pb.OffsetKind.ValueType, at_ms: int = 0
    ) -> Mapping[Partition, int]:
        """Look up offsets of these partitions."""
        return self._offsets(await self._answer(partitions, what, at_ms))

    async def _answer(
        self, partitions: Sequence[Partition], what: pb.OffsetKind.ValueType, at_ms: int = 0
    ) -> pb.OrderAnswer:
        """Send a query, and return its answer without errors."""
        numbers: dict[str, list[int]] = {}
        for each in partitions:
            numbers.setdefault(each.topic, []).append(each.number)
        topics = [pb.TopicPartitions(topic=topic, partitions=found) for topic, found in numbers.items()]
        query = pb.QueryOffsets(topics=topics, what=what, timestamp_ms=at_ms)
        answer = await self._order(query)
        self._refuse_errors(answer)
        return answer

    def _refuse_errors(self, answer: pb.OrderAnswer) -> None:
        for error in answer.errors:
            raise Unavailable(f"{self._cannot} of {error.topic}: {error.message}")

    def _offsets(self, answer: pb.OrderAnswer) -> Mapping[Partition, int]:
        """Return the offsets in an answer. Raises Unavailable if it lacks some."""
        self._refuse_errors(answer)
        return {Partition(each.topic, each.partition): each.offset for each in answer.offsets}

    async def _order(self, query: pb.QueryOffsets) -> pb.OrderAnswer:
        answer = await query_offsets(self._fleet, self._sidecar, query)
        if answer.error:
            raise Unavailable(f"{self._cannot}: {answer.error}")
        return answer

    @property
    def _cannot(self) -> str:
        return f"{self._sidecar.pod} cannot look up offsets"


# Opens a source of the offsets of a ConsumerGroup's group; raises Unavailable.
OpenSource: TypeAlias = Callable[[Key], AbstractAsyncContextManager[OffsetSource]]


def no_member(access: ResetAccess) -> str:
    """Return why the offsets of a group in Kafka cannot be looked up, and what to do."""
    problem = access.watched.access.problem
    return f"{NO_MEMBER}; {problem}" if problem else NO_MEMBER


def rota_source(access: ResetAccess) -> OffsetSource:
    """Return the source of a group on Rota's coordinator whose records are in the embedded log."""
    coordinator, watched = access.coordinator, access.watched
    assert coordinator is not None, "a group with an embedded log has a coordinator"
    return EngineSource(
        watched.group_id,
        Subscription(watched.topics, watched.topic_pattern),
        RotaGroups(coordinator),
        RotaRecords(coordinator.bootstrap, read_committed=watched.read_committed),
        partial(alter_offsets, coordinator, watched.group_id),
    )


class OffsetSources:
    """Opens the source of a group's offsets that can be reached now."""

    def __init__(self, fleet: Fleet, access: Callable[[Key], ResetAccess | None]) -> None:
        self._fleet = fleet
        self._access = access

    @asynccontextmanager
    async def open(self, key: Key) -> AsyncIterator[OffsetSource]:
        """Open a source. Raises Unavailable."""
        access = self._access(key)
        if access is None:
            raise Unavailable(NOT_WATCHED)
        if access.watched.has_log:
            yield rota_source(access)
            return
        connected = {each.sidecar.pod: each.sidecar for each in self._fleet.connected if key_of(each) == key}
        pods = sorted(connected.keys() & access.reports.keys())
        if pods:
            yield SidecarSource(self._fleet, connected[pods[0]], access)
            return
        if not access.watched.access.properties:
            raise Unavailable(no_member(access))
        # The library is slow to import.
        kafka = await asyncio.to_thread(importlib.import_module, "rota_operator.cluster.reset_kafka")
        async with kafka.kafka_source(access) as source:
            yield source
