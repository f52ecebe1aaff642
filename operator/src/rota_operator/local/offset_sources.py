"""Opens the source of a group's offsets for a reset: the local coordinator, its log, or Kafka brokers. Called by `offset_resets`."""

import asyncio
import importlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import grpc.aio

from rota_operator.engines.admin import alter_offsets
from rota_operator.engines.coordinators import OnlyCoordinator
from rota_operator.engines.port import Groups, IndexedRecords
from rota_operator.engines.rota import RotaGroups, RotaRecords
from rota_operator.engines.watch import Subscription
from rota_operator.local.commands import LocalPaths
from rota_operator.local.group_watches import is_coordinated_locally, is_on_kafka, servers_of
from rota_operator.manifests.resources import ConsumerGroup
from rota_operator.offset_resets.sources import EngineSource, OffsetSource, SetOffsets
from rota_operator.plan.settings import ISOLATION


@asynccontextmanager
async def open_source(
    group: ConsumerGroup, paths: LocalPaths, channel: grpc.aio.Channel
) -> AsyncIterator[OffsetSource]:
    """Open the engines of a group; `channel` is the local coordinator's."""
    subscription = Subscription(group.spec.topics, group.spec.topic_pattern)
    if is_on_kafka(group, paths):
        # The library is slow to import.
        await asyncio.to_thread(importlib.import_module, "rota_operator.engines.kafka")
    async with AsyncExitStack() as clients:
        records = _records(group, paths, channel, clients)
        groups, set_offsets = _groups(group, paths, channel, clients)
        yield EngineSource(group.group_id, subscription, groups, records, set_offsets)


def _records(
    group: ConsumerGroup, paths: LocalPaths, channel: grpc.aio.Channel, clients: AsyncExitStack
) -> IndexedRecords:
    read_committed = group.spec.config.get(ISOLATION) == "read_committed"
    if not is_on_kafka(group, paths):
        return RotaRecords(channel, read_committed=read_committed)
    from rota_operator.engines.kafka import KafkaRecords

    config = {"bootstrap.servers": servers_of(group, paths)}
    records = KafkaRecords(config, read_committed=read_committed)
    clients.push_async_callback(records.close)
    return records


def _groups(
    group: ConsumerGroup, paths: LocalPaths, channel: grpc.aio.Channel, clients: AsyncExitStack
) -> tuple[Groups, SetOffsets]:
    if is_coordinated_locally(group, paths):
        coordinator = OnlyCoordinator(channel)
        return RotaGroups(coordinator), partial(alter_offsets, coordinator, group.group_id)
    from rota_operator.engines.kafka import KafkaGroups

    groups = KafkaGroups(group.group_id, {"bootstrap.servers": servers_of(group, paths)})
    clients.push_async_callback(groups.close)
    return groups, groups.commit
