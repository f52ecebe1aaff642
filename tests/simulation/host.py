"""A machine for a coordinator. The coordinator is the shipping code: service, ownership, slot, core."""

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from rota_coordinator.group.answers import group_of
from rota_coordinator.group.config import GroupConfig
from rota_coordinator.group.hashing import slot_of
from rota_coordinator.ownership import Sole
from rota_coordinator.service import Service
from rota_coordinator.slot import Answer, Shell, Slot, SlotState
from rota_coordinator.slots.table import SLOTS
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import Record
from tests.simulation.claims import check, check_decision, commit_of
from tests.simulation.disk import Disk, DiskStore
from tests.simulation.history import History, Ticket
from tests.simulation.loop import NEVER, Process, VirtualLoop
from tests.simulation.network import Connection, Exchange, Network, Noticed
from tests.simulation.plan import GROUPS, SESSION_S, Plan
from tests.simulation.situations import Situations
from tests.simulation.watch import Mirror, Watch

SLOT = slot_of(GROUPS[0], SLOTS)
EXPIRE_EVERY_S = 2.0


def give_up(broken: Exception) -> None:
    """A core that breaks is what the simulation looks for."""
    raise broken


class Surroundings(Protocol):
    """What a host needs of its world."""

    loop: VirtualLoop
    plan: Plan
    chance: random.Random
    config: GroupConfig
    disk: Disk
    network: Network
    mirror: Mirror
    situations: Situations
    histories: dict[str, History]
    calm: bool

    def fresh(self) -> str: ...

    def fault(self, name: str) -> None: ...


class Host:
    """A machine for a coordinator: its process dies and comes back."""

    def __init__(self, world: Surroundings, address: str) -> None:
        self.world = world
        self.address = address
        self.process: Process | None = None
        self.connections: set[Connection] = set()
        # Requests that have no answer yet.
        self.unanswered = 0
        self._dialled = 0
        self._speakers: dict[str, Connection] = {}
        self._service: Service | None = None
        self._store: DiskStore | None = None
        self._watch: Watch | None = None
        # The group for which something is being decided, and what it wants to have written.
        self._deciding = ""
        self._appended = 0

    @property
    def slot(self) -> Slot:
        """The slot that everything is about; there while the process is."""
        assert self._service is not None
        return self._service.slots[SLOT]

    @property
    def watch(self) -> Watch:
        assert self._watch is not None
        return self._watch

    def start(self) -> None:
        """Start on what the disk has."""
        if self.process is not None:
            return
        world = self.world
        process = self.process = Process(world.loop)
        self._store = DiskStore(world.disk, process)
        self._store.on_append = self._on_append
        shell = Shell(
            store=self._store,
            config=world.config,
            now_ms=lambda: int(world.loop.now_s * 1000),
            fresh=world.fresh,
            notify=self._notify,
            changed=lambda group_id: None,
            report=lambda text: None,
            broken=give_up,
            compact_above=world.plan.compact_above,
        )
        self._service = Service(shell, self.address)
        # Only the groups' slot: reading fifty empty ones would be most of what a run does.
        self._service.ownership = Sole([self.slot], lambda: self.address, shell.report)
        self._watch = process.owner = Watch(self.slot, self._store, world.mirror, world.situations)
        if world.plan.turns_to_live and not world.calm:
            process.turns_left = 2 + int(world.chance.expovariate(1 / world.plan.turns_to_live))
            process.doom = self.crash
        process.spawn(self._service.tend(lambda: None))
        process.spawn(self._expire_offsets(self._service))

    def crash(self) -> None:
        """SIGKILL, or the end of the machine; it comes back after a while."""
        if self.process is None or self._store is None:
            return
        world = self.world
        world.fault("coordinator crash")
        world.situations.crashed(self.watch.looks, writing=self._store.writing)
        self.process.kill()
        self.process = None
        # The system closes the connections of a process, and nobody those of a machine.
        connections, self.connections = self.connections, set()
        if world.chance.random() < 0.7:
            for connection in sorted(connections, key=lambda each: each.number):
                world.network.reset(connection)
        self._speakers.clear()
        self.unanswered = 0
        world.loop.outside(world.chance.uniform(0, 2 * SESSION_S), self.start)

    def _crash_of(self, process: Process | None) -> None:
        """Crash, if it is still that process which runs."""
        if self.process is process:
            self.crash()

    def heal(self) -> None:
        """Run, and go on running."""
        self.start()
        assert self.process is not None
        self.process.turns_left = NEVER
        self.process.wake()

    def connect(self, client: Process, noticed: Noticed) -> Connection:
        """A member dials."""
        self._dialled += 1
        connection = Connection(self._dialled, client, self, noticed)
        self.connections.add(connection)
        return connection

    def receive(self, exchange: Exchange) -> None:
        """A request arrives. Called in this host's process."""
        request, service = exchange.request, self._service
        assert service is not None
        if isinstance(request, pb.FindCoordinatorRequest):
            self.world.network.answer(exchange, service.find(request))
            return
        group_id = group_of(request)
        history = self.world.histories[group_id]
        commit = commit_of(request, history)
        if commit is not None:
            commit.arrivals += 1
        if isinstance(request, pb.JoinGroupRequest | pb.HeartbeatRequest) and not exchange.is_copy:
            self._speakers[request.member_id] = exchange.connection
        acknowledged = dict(history.acknowledged) if isinstance(request, pb.FetchOffsetsRequest) else {}
        if isinstance(request, pb.HeartbeatRequest) and self.slot.state is not SlotState.READY:
            history.unseen[exchange.connection.client] = self.world.loop.now_s
        decided = self.world.situations.asked(self.slot, request)
        self._deciding, self._appended = group_id, 0
        answer = service.submit(request, "/127.0.0.1")
        self._deciding = ""
        decided()
        self.watch.touched = True
        group = self.slot.groups.groups.get(group_id)
        incarnation = 0 if group is None else group.incarnation
        ticket = Ticket(incarnation, acknowledged, wrote=self._appended > 0)
        self.unanswered += 1
        answer.add_done_callback(partial(self._answered, exchange, ticket))

    def _answered(self, exchange: Exchange, ticket: Ticket, answer: Answer) -> None:
        self.unanswered -= 1
        reply = answer.result()
        request = exchange.request
        assert not isinstance(request, pb.FindCoordinatorRequest)
        if reply is not None:
            group_id = group_of(request)
            self.world.situations.answered(self.slot, group_id, reply)
            history = self.world.histories[group_id]
            check(history, ticket, request, reply, whose=exchange.connection.client)
        self.world.network.answer(exchange, reply)

    def _on_append(self, records: Sequence[Record]) -> None:
        self._appended += 1
        check_decision(self._deciding, records)
        world = self.world
        if not world.calm and world.chance.random() < world.plan.crash_rate:
            world.loop.outside(
                world.chance.uniform(0, 2 * world.plan.latency_s), self._crash_of, self.process
            )

    def _notify(self, notice: pb.RebalanceNotice) -> None:
        connection = self._speakers.get(notice.member_id)
        if connection is not None:
            self.world.network.push(connection, notice)

    async def _expire_offsets(self, service: Service) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            service.expire_offsets()
