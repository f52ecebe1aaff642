"""A ConsumerGroup, its group and its sidecars in memory, on which steps of a reset are performed, and killed."""

import copy
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from typing_extensions import override

from rota_operator.cluster.api import Api
from rota_operator.cluster.coordinators import FollowedCoordinator
from rota_operator.cluster.errors import Conflict
from rota_operator.cluster.event_recorder import Fact
from rota_operator.cluster.group_watch import ResetAccess
from rota_operator.cluster.kinds import CONFIG_MAP, CONSUMER_GROUP, ResourceKind
from rota_operator.cluster.offset_resets import OffsetResets, ResetPorts
from rota_operator.cluster.queues import Key
from rota_operator.cluster.reset_execution import ExecutionPorts, ResetExecution
from rota_operator.cluster.reset_plans import ResetPlans
from rota_operator.cluster.settings_orders import Fleet
from rota_operator.cluster.watched import Watched
from rota_operator.engines.port import Unavailable
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.offset_resets.sources import OffsetSource
from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import DescribedMember, Description
from rota_operator.reconcile.observed import Object
from rota_operator.resets.machine import is_suspending
from rota_operator.resets.targets import LogRange
from rota_proto.fleet.v1 import fleet_pb2 as pb

Json = Any
KEY = Key("shop", "orders")
GROUP_ID = "shop.orders"
NOW_MS = 1_700_000_000_000
TERMINAL = ("Rejected", "Recorded", "Planned", "Completed", "Failed")
STEPS_MAX = 60


class Killed(Exception):
    """The operator was killed at this request."""


@dataclass
class Kills:
    """Kills the operator at its n-th request that changes something, before or after it takes effect."""

    at: int = -1
    is_after: bool = False
    count: int = 0

    def before(self) -> None:
        self.count += 1
        if self.count == self.at and not self.is_after:
            raise Killed

    def after(self) -> None:
        if self.count == self.at and self.is_after:
            raise Killed


class Objects(Api):
    """Objects by kind and name; every write needs the newest version, as with `metadata.resourceVersion`."""

    def __init__(self, kills: Kills) -> None:
        self.held: dict[tuple[str, str], Json] = {}
        self._kills = kills
        self._version = 1
        self.on_patch: Callable[[], None] = lambda: None
        # Others write between a read and the write that rests on it.
        self.rivals = 0

    @override
    async def find(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        return copy.deepcopy(self.held.get((kind.kind, name)))

    @override
    async def apply(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        fields: Object,
        *,
        force: bool = False,
        manager: str = "rota",
    ) -> Object:
        self._kills.before()
        self.held[kind.kind, name] = {**copy.deepcopy(dict(fields))}
        self._kills.after()
        return fields

    @override
    async def patch(
        self, kind: ResourceKind, namespace: str, name: str, changes: Object, subresource: str = ""
    ) -> Object:
        held = self.held[kind.kind, name]
        if self.rivals:
            self.rivals -= 1
            self.touch(held)
        if changes["metadata"]["resourceVersion"] != held["metadata"]["resourceVersion"]:
            raise Conflict("another version")
        self._kills.before()
        merge(held, {"status": changes["status"]})
        self.touch(held)
        self.on_patch()
        self._kills.after()
        return copy.deepcopy(cast("Object", held))

    def touch(self, held: Json) -> None:
        self._version += 1
        held["metadata"]["resourceVersion"] = str(self._version)


def merge(held: Json, changes: Json) -> None:
    """Apply a JSON merge patch."""
    for name, value in changes.items():
        if value is None:
            held.pop(name, None)
        elif isinstance(value, dict):
            merge(held.setdefault(name, {}), value)
        else:
            held[name] = value


@dataclass
class Sidecar:
    """One member, whose application reads whenever it may."""

    partitions: set[Partition]
    suspended: bool = False
    connected: bool = True


@dataclass
class World(Fleet):
    """Invariant: each partition has at most one owner; an owner that is not suspended commits one record more at each request."""

    reset: Json = None
    commit_mode: str = "periodic"
    kills: Kills = field(default_factory=Kills)
    ranges: dict[Partition, LogRange] = field(default_factory=dict)
    committed: dict[Partition, int] = field(default_factory=dict)
    sidecars: dict[str, Sidecar] = field(default_factory=dict)
    # Client ids of members that are no sidecars.
    foreign: tuple[str, ...] = ()
    generation: int = 3
    topic_id: str = "1f"
    events: list[Fact] = field(default_factory=list)
    is_reconciling: bool = True
    # Called before each order.
    on_order: Callable[[str, pb.SidecarOrder], None] = lambda pod, order: None
    # Committed offsets whenever a phase was written.
    history: list[tuple[str, dict[Partition, int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        partitions = [Partition("orders", number) for number in range(4)]
        self.ranges = self.ranges or {each: LogRange(10, 100) for each in partitions}
        self.committed = self.committed or {each: 50 + each.number for each in partitions}
        self.sidecars = self.sidecars or {"a": Sidecar({*partitions[:2]}), "b": Sidecar({*partitions[2:]})}
        self.objects = Objects(self.kills)
        self.objects.on_patch = self._note
        self.objects.held[CONSUMER_GROUP.kind, "orders"] = {
            "metadata": {"namespace": "shop", "name": "orders", "uid": "u-1", "resourceVersion": "1", "generation": 2},
            "spec": {
                "bootstrapServers": ["rota://rota:7070"], "topics": ["orders"],
                "scaleTargetRef": {"kind": "Deployment", "name": "orders"},
                "offsets": {"commit": {"mode": self.commit_mode}},
            },
            "status": {"observedGeneration": 2, "groupId": GROUP_ID},
        }  # fmt: skip
        if self.reset is not None:
            self.resource["spec"]["offsets"]["reset"] = self.reset
        self.resets = self.new_operator()

    @property
    def resource(self) -> Json:
        return self.objects.held[CONSUMER_GROUP.kind, "orders"]

    @property
    def record(self) -> Json:
        return self.resource["status"].get("offsetReset", {})

    def request(self, reset: Json) -> None:
        """Edit the spec."""
        self.resource["spec"]["offsets"]["reset"] = reset
        self.resource["metadata"]["generation"] += 1
        self.objects.touch(self.resource)

    def config_map(self, name: str) -> Json:
        return self.objects.held[CONFIG_MAP.kind, name]["data"]

    def new_operator(self, timestamp: Callable[[int], str] = lambda at_ms: f"@{at_ms}") -> OffsetResets:
        """Return another life of the operator; `timestamp` formats a time in ms."""
        plans = ResetPlans(self.objects, timestamp)
        ports = ResetPorts(
            self.objects, lambda: NOW_MS, self._written,
            lambda resource, fact: self.events.append(fact), lambda text: None, self._raise,
        )  # fmt: skip
        execution = ResetExecution(ExecutionPorts(self.objects, self, self.access, self.source), plans)
        resets = OffsetResets(ports, execution)
        resets.decided(KEY, self.resource, is_accepted=True)
        self.reconcile()
        return resets

    def _raise(self, error: Exception) -> None:
        raise error

    def _written(self, key: Key, resource: Object) -> None:
        self.reconcile()

    def _note(self) -> None:
        self.history.append((self.record["phase"], dict(self.committed)))

    def reconcile(self) -> None:
        """Write the settings, and send them to all that are connected."""
        if not self.is_reconciling:
            return
        wanted = is_suspending(self.resource["status"]) or self.resource["spec"].get("suspend", False)
        settings = f'{{"suspend": {str(wanted).lower()}}}'
        self.objects.held[CONFIG_MAP.kind, "rota-orders"] = {"data": {"settings.json": settings}}

    async def run(self) -> str:
        """Step until the reset has come to an end; returns the phase."""
        for _ in range(STEPS_MAX):
            self.resets.decided(KEY, self.resource, is_accepted=True)
            await self.resets.step(KEY)
            if self.record.get("phase") in TERMINAL:
                return str(self.record["phase"])
        return str(self.record.get("phase"))

    def move(self, partition: Partition, to: str) -> None:
        """Rebalance: give a partition to another member."""
        for sidecar in self.sidecars.values():
            sidecar.partitions.discard(partition)
        self.sidecars[to].partitions.add(partition)
        self.generation += 1

    def read(self) -> None:
        """Consume one record of each partition whose owner is not suspended."""
        for sidecar in self.sidecars.values():
            if not sidecar.suspended:
                for partition in sidecar.partitions:
                    self.committed[partition] = min(
                        self.committed.get(partition, 10) + 1, self.ranges[partition].end
                    )

    def access(self, key: Key) -> ResetAccess:
        members = [
            *(DescribedMember(f"{pod}-id", pod) for pod in self.sidecars),
            *(DescribedMember(f"{name}-id", name) for name in self.foreign),
        ]
        state = "Stable" if members else "Empty"
        watched = Watched(
            GROUP_ID,
            "rota:7070",
            has_log=True,
            topics=("orders",),
            topic_pattern="",
            initial_offset="earliest",
            read_committed=False,
        )
        return ResetAccess(
            watched,
            cast("FollowedCoordinator", object()),
            Description(GROUP_ID, state, self.generation, "range", members),
            {pod: self._report(pod) for pod, each in self.sidecars.items() if each.connected},
        )

    def _report(self, pod: str) -> pb.SidecarReport:
        sidecar = self.sidecars[pod]
        member = pb.MemberReport(
            state=pb.MEMBER_STATE_STABLE, generation_id=self.generation, suspended=sidecar.suspended
        )
        owned = [pb.PartitionReport(topic=each.topic, partition=each.number) for each in sidecar.partitions]
        return pb.SidecarReport(sidecar=pod, member=member, partitions=owned)

    @property
    @override
    def connected(self) -> Sequence[Principal]:
        return [
            Principal(SidecarRef("shop", pod), GROUP_ID, pod, "shop/orders")
            for pod, each in self.sidecars.items()
            if each.connected
        ]

    @override
    async def order(self, sidecar: SidecarRef, order: pb.SidecarOrder, within_s: float) -> pb.OrderAnswer:
        self.read()
        self.on_order(sidecar.pod, order)
        if sidecar.pod not in self.sidecars:
            return pb.OrderAnswer(error=f"{sidecar.pod} is not connected")
        self.kills.before()
        error = self._execute(self.sidecars[sidecar.pod], order)
        self.kills.after()
        return pb.OrderAnswer(order_id=1, error=error)

    def _execute(self, sidecar: Sidecar, order: pb.SidecarOrder) -> str:
        match order.WhichOneof("order"):
            case "suspend":
                sidecar.suspended = True
            case "resume":
                sidecar.suspended = False
            case "reset_offsets":
                reset = order.reset_offsets
                if reset.generation_id != self.generation:
                    return "ILLEGAL_GENERATION"
                wanted = {
                    Partition(topic.topic, each.partition): each.offset
                    for topic in reset.topics
                    for each in topic.offsets
                }
                if wanted.keys() - sidecar.partitions:
                    return "orders-0: it has another owner"
                self.committed |= wanted
        return ""

    @asynccontextmanager
    async def source(self, key: Key) -> AsyncIterator[OffsetSource]:
        yield Source(self)


class Source(OffsetSource):
    """Offsets of the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    @override
    async def ranges(self) -> Mapping[Partition, LogRange]:
        self._world.read()
        return dict(self._world.ranges)

    @override
    async def committed(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        self._world.read()
        return {each: at for each, at in self._world.committed.items() if each in partitions}

    @override
    async def at_time(self, partitions: Collection[Partition], at_ms: int) -> Mapping[Partition, int]:
        assert at_ms >= 0, "-1 is the log end in ListOffsets, -2 the log start"
        return dict.fromkeys(partitions, 30)

    @override
    async def timestamps(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, int | None]:
        return {each: offset * 1_000 for each, offset in offsets.items()}

    @override
    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return dict.fromkeys(topics, self._world.topic_id)

    @override
    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        if self._world.sidecars or self._world.foreign:
            raise Unavailable("cannot reset the offsets of group shop.orders (NON_EMPTY_GROUP)")
        self._world.kills.before()
        self._world.committed |= offsets
        self._world.kills.after()
