"""
One coordinator, its disk, a network and some members, in virtual time, from one seed.

The coordinator is the shipping code (service, slot, core). The members are simple clients of the protocol; what they
learn goes into the history, which checks it.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.message import Message

from rota_coordinator.group.answers import Request
from rota_coordinator.group.config import GroupConfig
from rota_coordinator.group.groups import Groups
from rota_coordinator.group.hashing import slot_of
from rota_coordinator.service import Service
from rota_coordinator.slot import Shell
from rota_coordinator.slots.table import SLOTS
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import Record
from tests.simulation.disk import Disk, DiskStore
from tests.simulation.history import History, Violation

GROUP = "simulated"
SLOT = slot_of(GROUP, SLOTS)
CALM_DELAY_S = 0.01
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed draws; each fault is left out in some runs, so that its absence is tried too."""

    members: int
    statics: int
    partitions: int
    delay_s: float
    reset_rate: float
    disk_latency_s: float
    disk_error_rate: float
    coalesce_ms: int
    compact_above: int
    calm_s: float  # between two acts of the nemesis
    steps: int

    @classmethod
    def draw(cls, chance: random.Random, steps: int) -> "Plan":
        members = chance.randint(1, 6)
        return cls(
            members=members,
            statics=chance.randint(0, members) if chance.random() < 0.5 else 0,
            partitions=chance.randint(1, 8),
            delay_s=chance.choice([0.001, 0.02, 0.2]),
            reset_rate=chance.choice([0, 0.01, 0.05]),
            disk_latency_s=chance.choice([0.0005, 0.01, 0.1]),
            disk_error_rate=chance.choice([0, 0, 0.02]),
            coalesce_ms=chance.choice([0, 250]),
            compact_above=chance.choice([0, 1_000]),
            calm_s=chance.choice([1, 5, 20]),
            steps=steps,
        )


@dataclass(slots=True)
class World:
    """Everything of a run."""

    seed: int
    plan: Plan
    chance: random.Random
    history: History = field(default_factory=History)
    fired: "Counter[str]" = field(default_factory=Counter)
    host: "Host" = field(init=False)
    steps: int = 0
    calm: bool = False
    _ids: int = 0

    def __post_init__(self) -> None:
        disk = Disk(self.chance, self.plan.disk_latency_s, self.plan.disk_error_rate, self.fired)
        disk.on_compaction = self.history.compacted
        self.host = Host(self, disk)

    def fresh(self) -> str:
        self._ids += 1
        return f"#{self._ids}"

    def step(self) -> None:
        """Something happened."""
        self.steps += 1

    @property
    def written(self) -> list[Record]:
        return self.host.disk.records.get(SLOT, [])


class Host:
    """The coordinator's process: it can die and come back."""

    def __init__(self, world: World, disk: Disk) -> None:
        self.world = world
        self.disk = disk
        self.service: Service | None = None
        self.died = asyncio.Event()
        self._store = DiskStore(disk)

    async def start(self) -> None:
        """Start on what the disk has."""
        self.died = asyncio.Event()
        self._store = DiskStore(self.disk)
        loop = asyncio.get_running_loop()
        config = GroupConfig(
            session_timeout_ms_min=100,
            initial_rebalance_delay_ms=self.world.chance.choice([0, 500]),
            rebalance_coalesce_ms=self.world.plan.coalesce_ms,
        )
        shell = Shell(
            store=self._store,
            config=config,
            now_ms=lambda: int(loop.time() * 1000),
            fresh=self.world.fresh,
            notify=lambda notice: self.world.fired.update(["notice"]),
            changed=lambda group_id: None,
            report=lambda text: None,
            compact_above=self.world.plan.compact_above,
        )
        self.service = Service(shell, "simulated:7070")
        # Only the group's slot: reading fifty empty ones would be most of what a run does.
        await self.service.slots[SLOT].start()

    def crash(self) -> None:
        """SIGKILL."""
        if self.service is None:
            return
        self.world.fired["coordinator crash"] += 1
        service, self.service = self.service, None
        self.died.set()
        self._store.crash()
        service.stop()

    def size(self) -> int:
        """How many members the coordinator counts."""
        group = self.service.slots[SLOT].groups.groups.get(GROUP) if self.service else None
        return 0 if group is None else len(group.members)

    def check_replay(self) -> None:
        """S10: what a restart would read is what the running coordinator says, whole and compacted."""
        assert self.service is not None
        live = self.service.slots[SLOT].groups
        read = Groups(live.config)
        for record in self.world.written:
            read.replay(record)
        if read.snapshot() != live.snapshot():
            raise Violation("S10: the disk and the coordinator say different things")


class Connection:
    """A member's connection: in order, with delay, and broken at times; what is under way is then lost."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._arrival_s = 0.0
        self._open = True

    def close(self) -> None:
        self._open = False

    async def call(self, request: Request, within_s: float) -> Message:
        """Send a request, wait for its answer."""
        async with asyncio.timeout(within_s):
            await self._travel()
            service = self._world.host.service
            if service is None:
                raise ConnectionError("nobody listens")
            died = self._world.host.died
            self._world.step()
            reply = await first(service.submit(request, "/127.0.0.1"), died)
            if reply is None:
                raise ConnectionError("a newer call took its place")
            if isinstance(reply, pb.JoinGroupResponse) and reply.error_code == pb.NONE:
                self._world.history.told(reply)
            await self._travel()
            return reply

    async def _travel(self) -> None:
        world = self._world
        loop = asyncio.get_running_loop()
        if not world.calm and world.chance.random() < world.plan.reset_rate:
            world.fired["connection reset"] += 1
            self.close()
        # A healed network is faster than heartbeats: else members are silent for their session by chance.
        delay_s = CALM_DELAY_S if world.calm else world.plan.delay_s
        arrives_s = loop.time() + world.chance.expovariate(1 / delay_s)
        self._arrival_s = max(self._arrival_s + 1e-6, arrives_s)
        await asyncio.sleep(self._arrival_s - loop.time())
        if not self._open:
            raise ConnectionError("the connection was reset")


async def first(answer: Awaitable[Result], died: asyncio.Event) -> Result:
    """The answer, unless the coordinator dies before it comes."""
    waiting = asyncio.ensure_future(answer)
    death = asyncio.ensure_future(died.wait())
    try:
        await asyncio.wait({waiting, death}, return_when=asyncio.FIRST_COMPLETED)
        if died.is_set():
            raise ConnectionError("the coordinator died")
        return waiting.result()
    finally:
        death.cancel()


def join_request(member_id: str, instance: str | None, session_ms: int) -> pb.JoinGroupRequest:
    """What every simulated member says when it joins."""
    return pb.JoinGroupRequest(
        group_id=GROUP,
        member_id=member_id,
        group_instance_id=instance,
        client_id="member",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=3 * session_ms,
        protocol_type="consumer",
        protocols=[pb.Protocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")],
    )
