"""
Watches all groups at their engines while the runner runs, and passes descriptions and offsets to the dashboard state.

A group on the local coordinator is described by a stream; its records are in the embedded log or in Kafka. A group on Kafka
brokers is polled.
"""

import asyncio
import importlib
import importlib.util
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc.aio

from rota_operator.engines.coordinators import OnlyCoordinator
from rota_operator.engines.port import Groups, Records
from rota_operator.engines.rota import RotaGroups, RotaRecords, watch_group
from rota_operator.engines.watch import OffsetWatch, Subscription, repeat
from rota_operator.local.commands import LocalPaths
from rota_operator.local.dashboard_state import DashboardState
from rota_operator.manifests.resources import ConsumerGroup
from rota_operator.plan.settings import ISOLATION

if TYPE_CHECKING:
    from rota_operator.engines.kafka import KafkaGroups

LIBRARY = "confluent_kafka"
NO_LIBRARY = "groups on Kafka require confluent-kafka, which is not installed; install rota-operator[kafka]"
Watch = Coroutine[Any, Any, None]


class GroupWatches:
    """The watches of one runner's groups; create on a running event loop."""

    def __init__(
        self,
        paths: LocalPaths,
        channel: grpc.aio.Channel,
        dashboard: DashboardState,
        warn: Callable[[str], None],
    ) -> None:
        self._paths = paths
        self._channel = channel
        self._dashboard = dashboard
        self._warn = warn
        self._clients = AsyncExitStack()

    async def run(self, groups: Iterable[ConsumerGroup]) -> None:
        """Watch the groups until cancelled; closes all clients."""
        groups = list(groups)
        if any(is_on_kafka(group, self._paths) for group in groups):
            # The library is slow to import.
            await asyncio.to_thread(importlib.import_module, "rota_operator.engines.kafka")
        async with self._clients, asyncio.TaskGroup() as tasks:
            for group in groups:
                for each in self._watches(group):
                    tasks.create_task(each)

    def _watches(self, group: ConsumerGroup) -> Iterator[Watch]:
        dashboard, group_id = self._dashboard, group.group_id
        groups: Groups
        if is_coordinated_locally(group, self._paths):
            coordinator = OnlyCoordinator(self._channel)
            groups = RotaGroups(coordinator)
            yield watch_group(
                coordinator,
                group_id,
                dashboard.update_description,
                # The runner reports a coordinator that restarts itself.
                lambda lost, _: dashboard.coordinator_lost(lost),
            )
        else:
            from rota_operator.engines.kafka import KafkaGroups

            groups = kafka = KafkaGroups(group_id, {"bootstrap.servers": servers_of(group, self._paths)})
            self._clients.push_async_callback(kafka.close)
            describe = partial(self._describe, kafka)
            yield repeat(describe, lambda _: dashboard.coordinator_lost(group_id))
        owned = partial(dashboard.owned, group_id)
        subscription = Subscription(group.spec.topics, group.spec.topic_pattern)
        offsets = OffsetWatch(group_id, subscription, groups, self._records(group), owned)
        yield repeat(partial(self._poll, offsets, group_id), partial(self._offsets_are_unknown, group_id))

    def _records(self, group: ConsumerGroup) -> Records:
        read_committed = group.spec.config.get(ISOLATION) == "read_committed"
        if not is_on_kafka(group, self._paths):
            return RotaRecords(self._channel, read_committed=read_committed)
        from rota_operator.engines.kafka import KafkaRecords

        config = {"bootstrap.servers": servers_of(group, self._paths)}
        records = KafkaRecords(config, read_committed=read_committed)
        self._clients.push_async_callback(records.close)
        return records

    def _offsets_are_unknown(self, group_id: str, reason: str) -> None:
        self._warn(f"lag of group {group_id} is unknown: {reason}; check that the servers are running")

    async def _describe(self, groups: "KafkaGroups") -> None:
        self._dashboard.update_description(await groups.describe())

    async def _poll(self, offsets: OffsetWatch, group_id: str) -> None:
        self._dashboard.update_offsets(group_id, await offsets.poll())


def is_coordinated_locally(group: ConsumerGroup, paths: LocalPaths) -> bool:
    """True if the local coordinator coordinates the group."""
    return group.spec.coordination == "Rota" or (group.spec.speaks_rota and not paths.kafka)


def is_on_kafka(group: ConsumerGroup, paths: LocalPaths) -> bool:
    """True if the group's records are in Kafka."""
    return bool(paths.kafka) or not group.spec.speaks_rota


def servers_of(group: ConsumerGroup, paths: LocalPaths) -> str:
    """Kafka brokers of the group, comma-separated."""
    return paths.kafka if group.spec.speaks_rota else ",".join(group.spec.bootstrap_servers)


def missing_library(groups: Iterable[ConsumerGroup], paths: LocalPaths) -> str:
    """Return the error if a required library is not installed, else an empty string."""
    if importlib.util.find_spec(LIBRARY) is None and any(is_on_kafka(group, paths) for group in groups):
        return NO_LIBRARY
    return ""
