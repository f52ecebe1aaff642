"""
Watches the groups of all ConsumerGroups at their coordinators, and merges what sidecars report: one `GroupView` for each.

The reconciler adds a ConsumerGroup when it has decided on it and removes it when it is gone; Fleet adds reports. A group on Rota's
coordinator is described by a stream, and its offsets are polled. A group on Kafka is known by its sidecars' reports, and where the
records are in Kafka, sidecars look up the offsets of partitions without an owner (`overview.offset_lookups`, sent by
`offset_orders`). Without any member, the operator reads such a group itself, if it has credentials for its cluster (`kafka_watch`).
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import grpc.aio
from typing_extensions import override

from rota_operator.cluster.channels import Channels
from rota_operator.cluster.coordinators import FollowedCoordinator
from rota_operator.cluster.group_watch import ResetAccess, Watch, strategies_in
from rota_operator.cluster.kafka_watch import KafkaCallbacks, KafkaWatch, SharedKafkaRecords, Subject
from rota_operator.cluster.observe import GroupStates
from rota_operator.cluster.perform import Coordinators
from rota_operator.cluster.queues import Key
from rota_operator.cluster.shared_records import SharedRecords
from rota_operator.cluster.watched import Watched, count_subscribed
from rota_operator.engines.admin import commit_initial_offsets, delete_group
from rota_operator.engines.port import Groups, Unavailable
from rota_operator.engines.rota import RotaGroups, RotaRecords, watch_group
from rota_operator.engines.watch import OffsetWatch, Subscription, repeat
from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import UNKNOWN, Description
from rota_operator.overview.group import EngineAccess
from rota_operator.overview.offset_lookups import FoundOffsets, OffsetLookups, OffsetQuery
from rota_operator.overview.offsets import OffsetChange, PartitionOffsets
from rota_operator.overview.overview import Overview
from rota_operator.overview.problems import NO_ANSWER, CoordinatorProblem
from rota_operator.overview.view import EventKind, GroupView, ReplicaView, WorkloadView
from rota_operator.reconcile.observed import GroupStrategies
from rota_operator.status.inputs import Progress, ReportedPartition
from rota_proto.fleet.v1.fleet_pb2 import OrderAnswer, SidecarReport

# Hundreds of groups are polled side by side; views stay valid for longer.
POLL_INTERVAL_S = 2.0
RETRY_WATCH_S = 2.0
NOT_WATCHED = "the group is not watched yet"
NOT_LISTED = "no sidecar of the group has looked up its offsets in Kafka lately"
NO_KAFKA = "the operator has no access to groups on Kafka"
COMMITTED_MEANWHILE = "the group has committed offsets meanwhile, so its initial offsets are not committed"
LATEST = "latest"


class GroupCallbacks(NamedTuple):
    """Called on the event loop of the watches."""

    # A group's view has changed.
    on_view: Callable[[Key], None]
    # No more than numbers and times of a group's view have changed.
    on_numbers: Callable[[Key], None]
    # A decision may have changed: whether the group has members, or offsets.
    on_state: Callable[[Key], None]
    on_exception: Callable[[Exception], None]


class GroupWatches(GroupStates, Coordinators):
    """
    Watches by ConsumerGroup; thread-confined to one event loop.

    Invariant: a watched group has exactly one `Watch`, whose tasks run until `remove`, `close` or a change of `Watched`.
    """

    def __init__(
        self,
        channels: Channels,
        callbacks: GroupCallbacks,
        wall_ms: Callable[[], int],
    ) -> None:
        self._channels = channels
        self._callbacks = callbacks
        self._wall_ms = wall_ms
        self._watches: dict[Key, Watch] = {}
        # By the coordinator's address and the isolation level; of channels that are open.
        self._records: dict[tuple[str, bool], SharedRecords] = {}
        self._kafka_records = SharedKafkaRecords()
        # Cancelled, and still ending.
        self._ending: set[asyncio.Task[None]] = set()

    def add(self, key: Key, watched: Watched) -> None:
        """Watch a group; no-op while nothing of it has changed."""
        known = self._watches.get(key)
        if known is not None and known.watched == watched:
            return
        self.remove(key)
        coordinator = self._coordinator(key, watched) if watched.coordinator else None
        overview = Overview(watched.coordinator)
        engine = EngineAccess(describes=bool(watched.coordinator), has_offsets=watched.has_log)
        overview.add_group(watched.group_id, watched.group_id, f"{key.namespace}/{key.name}", engine)
        watch = self._watches[key] = Watch(
            watched, overview, coordinator, None if watched.has_log else OffsetLookups()
        )
        watch.kafka_problem = watched.access.problem
        self._start(key, watch)

    def reconnect(self) -> None:
        """Watch all groups over new channels, which trust the authority of now; views stay as they are."""
        self._channels.renew()
        self._records.clear()
        for key, watch in self._watches.items():
            if watch.coordinator is not None:
                self._stop(watch)
                watch.coordinator.renew()
                self._start(key, watch)
        self._close_released()

    def remove(self, key: Key) -> None:
        """Stop watching a group."""
        watch = self._watches.pop(key, None)
        if watch is None:
            return
        self._stop(watch)
        if watch.coordinator is not None and watch.coordinator.release():
            for read_committed in (False, True):
                self._records.pop((watch.watched.coordinator, read_committed), None)
            self._close_released()

    def _coordinator(self, key: Key, watched: Watched) -> FollowedCoordinator:
        return FollowedCoordinator(
            self._channels, watched.coordinator, watched.group_id, key.namespace, self._close_released
        )

    def _start(self, key: Key, watch: Watch) -> None:
        if watch.watched.access.properties:
            watch.kafka = self._kafka_watch(key, watch)
        for each in self._coroutines(key, watch):
            task = asyncio.create_task(each)
            task.add_done_callback(self._ended)
            watch.tasks.append(task)

    def _stop(self, watch: Watch) -> None:
        for task in watch.tasks:
            task.cancel()
            self._ending.add(task)
        watch.tasks = []

    def _close_released(self) -> None:
        closing = asyncio.create_task(self._channels.close_released())
        closing.add_done_callback(self._ended)
        self._ending.add(closing)

    async def close(self) -> None:
        """Stop all watches, and wait for them."""
        for key in tuple(self._watches):
            self.remove(key)
        await asyncio.gather(*self._ending, return_exceptions=True)
        await self._channels.close()

    def add_report(self, key: Key, report: SidecarReport) -> None:
        """Add the report of a sidecar; no-op for a group that is not watched."""
        if (watch := self._watches.get(key)) is not None:
            now_ms = self._wall_ms()
            before = watch.reports.get(report.sidecar)
            watch.reports[report.sidecar] = (now_ms, report)
            if is_step_of_change(None if before is None else before[1], report):
                self._callbacks.on_state(key)
            is_news = watch.overview.add_report(report, now_ms)
            (self._callbacks.on_view if is_news else self._callbacks.on_numbers)(key)

    def next_query(self, key: Key, sidecars: Collection[str], now_ms: int) -> OffsetQuery | None:
        """Return the query to send to one of these sidecars now. The time is of any clock that does not jump."""
        watch = self._watches.get(key)
        if watch is None or watch.lookups is None or not watch.lookups.is_due(now_ms):
            return None
        unowned = watch.overview.unowned(watch.watched.group_id, self._wall_ms())
        return watch.lookups.next(sidecars, unowned, now_ms)

    def query_answered(self, key: Key, query: OffsetQuery, answer: OrderAnswer, now_ms: int) -> None:
        """Add the answer to a query; no-op if the group is watched anew since."""
        watch = self._watches.get(key)
        if watch is None or watch.lookups is None:
            return
        found = watch.lookups.answered(query, answer, now_ms)
        if found is None:
            return
        self._found_offsets(key, watch, found)

    @property
    def keys(self) -> Collection[Key]:
        """Return the watched ConsumerGroups."""
        return self._watches.keys()

    def view(self, key: Key) -> GroupView | None:
        """Return the group's state now; None if it is not watched."""
        watch = self._watches.get(key)
        if watch is None:
            return None
        now_ms = self._wall_ms()
        pods = tuple(ReplicaView(each.sidecar, "", None, 0) for each in watch.live(now_ms))
        workload = WorkloadView(*key, "", watch.watched.group_id, len(pods), len(pods), 0, pods)
        return watch.overview.view((workload,), now_ms).groups[0]

    def record_event(self, key: Key, kind: EventKind, message: str) -> None:
        """Append an event to the history of a group; no-op for one that is not watched."""
        if (watch := self._watches.get(key)) is not None:
            watch.overview.record_event(watch.watched.group_id, kind, message, self._wall_ms())
            self._callbacks.on_view(key)

    def reports(self, key: Key) -> Mapping[str, SidecarReport]:
        """Return the live reports of a group's sidecars, by the names of their pods."""
        watch = self._watches.get(key)
        return {} if watch is None else {each.sidecar: each for each in watch.live(self._wall_ms())}

    def progress(self, key: Key) -> Mapping[ReportedPartition, Progress]:
        """Return the progress that sidecars report now."""
        return {
            ReportedPartition(name, Partition(each.topic, each.partition)): Progress(
                each.last_progress_ms if each.HasField("last_progress_ms") else None, each.problem
            )
            for name, report in self.reports(key).items()
            for each in report.partitions
        }

    def is_on_kafka(self, key: Key) -> bool:
        """Return whether Kafka's brokers coordinate a group."""
        watch = self._watches.get(key)
        return watch is not None and watch.coordinator is None

    def kafka_problem(self, key: Key) -> str:
        """Return why the operator cannot read the group's Kafka cluster itself; empty: it can, or there is none."""
        watch = self._watches.get(key)
        return "" if watch is None else watch.kafka_problem

    def problem(self, key: Key) -> CoordinatorProblem:
        """Return why the coordinator does not describe the group."""
        watch = self._watches.get(key)
        return NO_ANSWER if watch is None else watch.problem

    def cluster_id(self, key: Key) -> str:
        """Return the id of the cluster that holds the records, as a sidecar reports it; empty: unknown."""
        return next((each.cluster_id for each in self.reports(key).values() if each.cluster_id), "")

    def versions(self, key: Key) -> Mapping[str, str]:
        """Return the versions of the software that live sidecars report, by the name of the pod; empty: older than reported."""
        return {name: each.version for name, each in self.reports(key).items()}

    @override
    def members(self, key: Key) -> int | None:
        watch = self._watches.get(key)
        if watch is None:
            return None
        if not watch.watched.coordinator and (reported := watch.reported_members(self._wall_ms())):
            return reported
        # On Kafka: described while no member reports, and if the operator has credentials for the cluster.
        if watch.description is None or watch.description.state == UNKNOWN:
            return None
        return len(watch.description.members)

    @override
    def is_new(self, key: Key) -> bool | None:
        watch = self._watches.get(key)
        if watch is None:
            return None
        watch.expire_listing(self._wall_ms())
        return None if watch.has_offsets is None else not watch.has_offsets

    @override
    def partitions(self, key: Key) -> int | None:
        watch = self._watches.get(key)
        if watch is None:
            return None
        watch.expire_listing(self._wall_ms())
        return watch.partitions

    @override
    def strategies(self, key: Key) -> GroupStrategies:
        watch = self._watches.get(key)
        return GroupStrategies() if watch is None else watch.strategies(self._wall_ms())

    def description(self, key: Key) -> Description | None:
        """Return the group's description of now; None: the coordinator does not describe it."""
        watch = self._watches.get(key)
        described = None if watch is None else watch.description
        return None if described is None or described.state == UNKNOWN else described

    def reset_access(self, key: Key) -> ResetAccess | None:
        """Return what a reset of the group's offsets needs; None: it is not watched."""
        watch = self._watches.get(key)
        if watch is None:
            return None
        return ResetAccess(watch.watched, watch.coordinator, self.description(key), self.reports(key))

    @override
    async def commit_initial_offsets(self, key: Key) -> None:
        watch = self._watches.get(key)
        if watch is None:
            raise Unavailable(NOT_WATCHED)
        if watch.coordinator is None:
            groups = kafka_of(watch).groups
            await groups.commit_initial_offsets(await self._listed_initial_offsets(groups, watch))
            return
        if watch.watched.has_log:
            offsets = await self._initial_offsets(watch.coordinator.bootstrap, watch.watched)
        else:
            offsets = await self._listed_initial_offsets(RotaGroups(watch.coordinator), watch)
        await commit_initial_offsets(watch.coordinator, watch.watched.group_id, offsets)

    @override
    async def delete_group(self, key: Key) -> None:
        watch = self._watches.get(key)
        if watch is None:
            raise Unavailable(NOT_WATCHED)
        if watch.coordinator is None:
            await kafka_of(watch).groups.delete()
            return
        await delete_group(watch.coordinator, watch.watched.group_id)

    def _coroutines(self, key: Key, watch: Watch) -> Iterator[Coroutine[Any, Any, None]]:
        coordinator, watched = watch.coordinator, watch.watched
        if watch.kafka is not None:
            yield watch.kafka.run()
        if coordinator is None:
            return
        yield watch_group(
            coordinator,
            watched.group_id,
            partial(self._described, key, watch),
            partial(self._lost, key, watch),
            RETRY_WATCH_S,
        )
        if watched.has_log:
            offsets = OffsetWatch(
                watched.group_id,
                Subscription(watched.topics, watched.topic_pattern),
                RotaGroups(coordinator),
                self._shared_records(coordinator.bootstrap, watched),
                lambda: watch.overview.owned(watched.group_id),
            )
            yield repeat(
                partial(self._poll, key, watch, offsets),
                lambda _: self._callbacks.on_view(key),
                POLL_INTERVAL_S,
            )

    async def _initial_offsets(self, channel: grpc.aio.Channel, watched: Watched) -> Mapping[Partition, int]:
        records = RotaRecords(channel, read_committed=watched.read_committed)
        partitions = await records.partitions(watched.topics, watched.topic_pattern)
        ranges = await records.ranges(partitions)
        at_end = watched.initial_offset == LATEST
        return {each: found.end if at_end else found.start for each, found in ranges.items()}

    async def _listed_initial_offsets(self, groups: Groups, watch: Watch) -> Mapping[Partition, int]:
        """
        Return the initial offsets of a group whose records are in Kafka.

        Raises Unavailable without a listing, and if a member has committed since: its offsets must not be replaced.
        """
        watch.expire_listing(self._wall_ms())
        if watch.listing is None:
            raise Unavailable(NOT_LISTED)
        if await groups.committed(watch.watched.group_id, watch.listing.offsets.keys()):
            watch.has_offsets = True
            raise Unavailable(COMMITTED_MEANWHILE)
        at_end = watch.watched.initial_offset == LATEST
        edges = {each: at.end if at_end else at.start for each, at in watch.listing.offsets.items()}
        return {each: offset for each, offset in edges.items() if offset is not None}

    def _shared_records(self, channel: grpc.aio.Channel, watched: Watched) -> SharedRecords:
        key = (watched.coordinator, watched.read_committed)
        if key not in self._records:
            records = RotaRecords(channel, read_committed=watched.read_committed)
            self._records[key] = SharedRecords(records)
        return self._records[key]

    def _described(self, key: Key, watch: Watch, found: Description) -> None:
        watch.description, watch.problem = found, NO_ANSWER
        watch.overview.update_description(found, self._wall_ms())
        self._changed(key, watch)

    def _kafka_watch(self, key: Key, watch: Watch) -> KafkaWatch:
        watched, overview = watch.watched, watch.overview
        subject = Subject(
            watched.group_id,
            Subscription(watched.topics, watched.topic_pattern),
            watched.read_committed,
            watched.access,
            None if watch.coordinator is None else RotaGroups(watch.coordinator),
        )
        callbacks = KafkaCallbacks(
            has_members=lambda: watch.reported_members(self._wall_ms()) > 0,
            owned=lambda: overview.owned(watched.group_id),
            described=partial(self._described, key, watch),
            listed=partial(self._listed, key, watch),
            paused=partial(self._lost_kafka, key, watch, ""),
            unknown=partial(self._lost_kafka, key, watch),
        )
        return KafkaWatch(subject, self._kafka_records, callbacks)

    def _listed(self, key: Key, watch: Watch, offsets: Mapping[Partition, PartitionOffsets]) -> None:
        """Take over offsets that the operator has read in Kafka itself, as those that a sidecar has looked up."""
        watch.kafka_problem = ""
        unowned = watch.overview.unowned(watch.watched.group_id, self._wall_ms())
        found = FoundOffsets(offsets, frozenset(unowned - offsets.keys()), is_complete=True)
        self._found_offsets(key, watch, found)

    def _found_offsets(self, key: Key, watch: Watch, found: FoundOffsets) -> None:
        at_ms = self._wall_ms()
        watch.overview.update_queried(watch.watched.group_id, found.offsets, found.missing, at_ms)
        if found.is_complete:
            watch.listing, watch.listed_ms = found, at_ms
            watch.has_offsets = found.has_committed
            watch.partitions = count_subscribed(watch.watched, found.offsets)
        self._changed(key, watch)

    def _lost_kafka(self, key: Key, watch: Watch, problem: str) -> None:
        """Forget what brokers have described: they do not answer, or sidecars report again."""
        is_news = watch.kafka_problem != problem
        watch.kafka_problem = problem
        if watch.coordinator is None:
            self._lost(key, watch, watch.watched.group_id, NO_ANSWER)
        if is_news:
            self._callbacks.on_view(key)

    def _lost(self, key: Key, watch: Watch, group_id: str, problem: CoordinatorProblem) -> None:
        if watch.description is None and watch.problem == problem:
            # Known already: a coordinator that is away is dialled again and again.
            return
        watch.description, watch.problem = None, problem
        watch.overview.coordinator_lost(group_id)
        self._changed(key, watch)

    async def _poll(self, key: Key, watch: Watch, offsets: OffsetWatch) -> None:
        found = await offsets.poll()
        watch.has_offsets = has_offsets(found)
        watch.partitions = count_subscribed(watch.watched, found)
        change = watch.overview.update_offsets(watch.watched.group_id, found, self._wall_ms())
        if change is OffsetChange.PARTITIONS:
            self._callbacks.on_view(key)
        elif change is OffsetChange.NUMBERS:
            self._callbacks.on_numbers(key)
        self._check_state(key, watch)

    def _changed(self, key: Key, watch: Watch) -> None:
        """Report that the view has changed, and whether decisions depend on the change."""
        self._callbacks.on_view(key)
        self._check_state(key, watch)

    def _check_state(self, key: Key, watch: Watch) -> None:
        members = self.members(key)
        strategy = "" if watch.description is None else watch.description.strategy
        has_members = None if members is None else members > 0
        state = (has_members, watch.has_offsets, strategy, watch.partitions)
        if watch.state != state:
            watch.state = state
            self._callbacks.on_state(key)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Watches run until they are cancelled; anything else is a bug, which is reported and takes down no other group."""
        self._ending.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._callbacks.on_exception(error)


def kafka_of(watch: Watch) -> KafkaWatch:
    """Return the operator's own access to a group on Kafka. Raises Unavailable."""
    if watch.kafka is None:
        raise Unavailable(watch.kafka_problem or NO_KAFKA)
    return watch.kafka


def has_offsets(found: Mapping[Partition, PartitionOffsets]) -> bool:
    """Return whether any partition has a committed offset."""
    return any(each.committed is not None for each in found.values())


def is_step_of_change(before: SidecarReport | None, report: SidecarReport) -> bool:
    """Return whether the report of a sidecar may complete a change of the strategy: its own have changed, or it offers several."""
    if before is None:
        return len(report.member.offered_strategies) > 1
    return strategies_in(before) != strategies_in(report)
