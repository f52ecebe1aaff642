"""A machine for a coordinator. The coordinator is the shipping code: service, ownership, slot, core."""

import asyncio
import random
from collections.abc import Collection, Sequence
from functools import partial
from typing import Protocol

from rota_coordinator.core.group.answers import group_of
from rota_coordinator.core.group.config import GroupConfig
from rota_coordinator.core.instants import MonotonicMs
from rota_coordinator.runtime.calls import Answer
from rota_coordinator.runtime.environments import SlotEnvironment
from rota_coordinator.runtime.overload import Refusal, Stalls
from rota_coordinator.runtime.ownership import (
    ExclusiveOwnership,
    Lease,
    Ownership,
    OwnershipCallbacks,
    SharedOwnership,
)
from rota_coordinator.runtime.replicated_state import SlotState
from rota_coordinator.runtime.router import Service
from rota_coordinator.runtime.slot import Slot
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import Record
from tests.simulation.claims import check, check_decision, check_owner, commit_of
from tests.simulation.disk import Disk, DiskStore
from tests.simulation.history import History, Ticket
from tests.simulation.loop import NEVER, Process, VirtualLoop
from tests.simulation.network import Connection, Exchange, Network, Noticed
from tests.simulation.plan import LEASE_S, SESSION_S, SLOTS_USED, Plan
from tests.simulation.shared_disk import Leases, SharedDiskStore
from tests.simulation.situations import Situations
from tests.simulation.transactions import PARTITIONS_OF_PRODUCERS
from tests.simulation.watch import Mirror, Watch

EXPIRE_EVERY_S = 2.0


def give_up(broken: Exception) -> None:
    """A core that breaks is what the simulation looks for."""
    raise broken


class Surroundings(Protocol):
    """Environment of a host in the simulated world."""

    loop: VirtualLoop
    plan: Plan
    chance: random.Random
    config: GroupConfig
    disk: Disk
    leases: Leases
    network: Network
    mirrors: dict[int, Mirror]
    situations: Situations
    histories: dict[str, History]
    calm: bool
    partitions: int

    def new_uuid(self) -> str: ...

    def fault(self, name: str) -> None: ...


class Host:
    """A machine for a coordinator: its process dies and comes back."""

    def __init__(self, world: Surroundings, address: str) -> None:
        self.world = world
        self.address = address
        self.process: Process | None = None
        self.connections: dict[Connection, None] = {}
        self._running: Coordinator | None = None

    @property
    def running(self) -> "Coordinator":
        """Return the program of the process; it exists while the process does."""
        assert self._running is not None
        return self._running

    def start(self) -> None:
        """Start on what the disk has."""
        if self.process is not None:
            return
        world = self.world
        process = self.process = Process(world.loop)
        self._running = process.owner = Coordinator(self, process)
        if world.plan.turns_to_live and not world.calm:
            process.turns_left = 2 + int(world.chance.expovariate(1 / world.plan.turns_to_live))
            process.doom = self.crash
        process.spawn(self._running.run())

    def crash(self) -> None:
        """SIGKILL, or the end of the machine; it comes back after a while."""
        if self.process is None:
            return
        self.world.fault("coordinator crash")
        self.running.crashed()
        self._end()

    def crash_for(self, seconds: float) -> None:
        """SIGKILL, and a start after that time."""
        self.running.crashed()
        self._end(seconds)

    def stop(self) -> None:
        """A clean stop; the process ends when it has handed over what it had, or a little later."""
        process = self.process
        if process is not None:
            self.world.fault("coordinator stopped")
            process.spawn(self.running.leave())
            self.world.loop.outside(self.world.chance.uniform(0.5, 2), self.end_of, process)

    def end_of(self, process: Process) -> None:
        """The process ends, if it is still that one which runs."""
        if self.process is process:
            self._end()

    def crash_of(self, process: Process) -> None:
        """Crash, if it is still that process which runs."""
        if self.process is process:
            self.crash()

    def _end(self, back_after_s: float | None = None) -> None:
        assert self.process is not None
        world = self.world
        self.process.kill()
        self.process = None
        # The system closes the connections of a process, and nobody those of a machine.
        connections, self.connections = self.connections, {}
        if world.chance.random() < 0.7:
            for connection in connections:
                world.network.reset(connection)
        if back_after_s is None:
            back_after_s = world.chance.uniform(0, 2 * SESSION_S)
        world.loop.outside(back_after_s, self.start)

    def heal(self) -> None:
        """Run, and go on running."""
        self.start()
        assert self.process is not None
        self.process.turns_left = NEVER
        self.process.wake()

    def connect(self, client: Process, noticed: Noticed) -> Connection:
        """A member dials."""
        connection = Connection(client, self, noticed)
        self.connections[connection] = None
        return connection

    def receive(self, exchange: Exchange) -> None:
        """A request arrives. Called in this host's process."""
        self.running.receive(exchange)


class Coordinator:
    """One process of a host, put together as the program does it."""

    def __init__(self, host: Host, process: Process) -> None:
        world = self.world = host.world
        self.host = host
        self.process = process
        # Requests that have no answer yet, by their future: whose they are.
        self.unanswered: dict[Answer, Slot] = {}
        self._speakers: dict[tuple[str, str], Connection] = {}
        # The group for which something is being decided, and how often something was to be written for it.
        self._deciding = ""
        self._appended = 0
        self._tending: list[asyncio.Task[None]] = []
        # Its clock is its own, but goes as fast as everybody's.
        ahead_ms = world.chance.randrange(10**9)
        now_ms = lambda: MonotonicMs(int(world.loop.now_s * 1000) + ahead_ms)
        self.lease = Lease(now_ms, int(LEASE_S * 1000))
        self.shared = SharedDiskStore(world.leases, process) if world.plan.hosts > 1 else None
        self.store = self.shared or DiskStore(world.disk, process)
        self.store.on_append = self._on_append
        self.stalls = Stalls(world.loop.time)
        environment = SlotEnvironment(
            store=self.store,
            config=world.config,
            now_ms=now_ms,
            new_uuid=world.new_uuid,
            notify=self._notify,
            group_changed=self._changed,
            report=lambda text: None,
            report_exception=give_up,
            may_serve=self.lease.runs if self.shared else lambda: True,
            stalls=self.stalls,
            compact_above=world.plan.compact_above,
            compact_running_above=world.plan.compact_running_above,
        )
        self.service = Service(environment, host.address)
        self.service.ownership = self._ownership()
        self.watches = {
            slot: Watch(self.service.slots[slot], self.store, world.mirrors[slot], world.situations)
            for slot in world.mirrors
        }

    def _ownership(self) -> Ownership:
        # Of few slots: reading fifty empty ones would be most of what a run does.
        slots = self.service.slots[:SLOTS_USED]
        if self.shared is None:
            return ExclusiveOwnership(slots, lambda: self.host.address, lambda text: None)
        callbacks = OwnershipCallbacks(lambda text: None, self._go_away)
        return SharedOwnership(self.shared, slots, lambda: self.host.address, self.lease, callbacks)

    async def run(self) -> None:
        """Run the program's main task."""
        self.stalls.start()
        self._tending = [
            self.process.spawn(self.service.run(lambda: None)),
            self.process.spawn(self._expire_offsets()),
        ]

    async def leave(self) -> None:
        """Shut the program down as on SIGTERM."""
        for task in self._tending:
            task.cancel()
        await self.service.leave()

    async def _expire_offsets(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            self.service.expire_offsets()

    def crashed(self) -> None:
        """Kill this process now."""
        for watch in self.watches.values():
            self.world.situations.crashed(watch.looks, writing=self.store.writing)

    def turn(self, *, by_timer: bool) -> None:
        """The process has done something: look at all that it holds, and at what it lets out."""
        for watch in self.watches.values():
            watch.turn(by_timer=by_timer)
        if self.shared is not None:
            for answer in [answer for answer in self.unanswered if answer.done()]:
                slot = self.unanswered.pop(answer)
                self._check_right(answer, slot)

    def _check_right(self, answer: Answer, slot: Slot) -> None:
        assert self.shared is not None
        reply = None if answer.exception() else answer.result()
        leases, me = self.shared.leases, self.shared.process_id
        owner = leases.owner(slot.number)
        check_owner(reply, alive=leases.is_alive(me), owner=owner == me or slot.state is not SlotState.READY)

    def slot_of(self, group_id: str) -> Slot:
        """The slot of a group."""
        return self.service.slot(group_id)

    def receive(self, exchange: Exchange) -> None:
        """A request arrives."""
        request = exchange.request
        if isinstance(request, pb.FindCoordinatorRequest):
            self.world.network.answer(exchange, self.service.find(request))
            return
        group_id = group_of(request)
        history, slot = self.world.histories[group_id], self.slot_of(group_id)
        commit = commit_of(request, history)
        if commit is not None:
            commit.arrivals += 1
        if isinstance(request, pb.JoinGroupRequest | pb.HeartbeatRequest) and not exchange.is_copy:
            self._speakers[group_id, request.member_id] = exchange.connection
        acknowledged = dict(history.acknowledged) if isinstance(request, pb.FetchOffsetsRequest) else {}
        if isinstance(request, pb.HeartbeatRequest) and slot.state is not SlotState.READY:
            history.unseen[exchange.connection.client] = self.world.loop.now_s
        decided = self.world.situations.asked(slot, request)
        self._deciding, self._appended = group_id, 0
        answer = self.service.submit(request, "/127.0.0.1")
        self._deciding = ""
        decided()
        group = slot.groups.groups.get(group_id)
        if isinstance(request, pb.HeartbeatRequest) and group is not None:
            member = group.members.by_id.get(request.member_id)
            # One from another generation does not count, as in Kafka.
            if member is not None and request.generation_id == group.generation:
                watch = self.watches[slot.number]
                watch.last_contact[request.member_id] = watch.now()
        incarnation = 0 if group is None else group.incarnation
        ticket = Ticket(incarnation, acknowledged, wrote=self._appended > 0)
        self.unanswered[answer] = slot
        answer.add_done_callback(partial(self._answered, exchange, ticket))

    def _answered(self, exchange: Exchange, ticket: Ticket, answer: Answer) -> None:
        self.unanswered.pop(answer, None)
        if isinstance(answer.exception(), Refusal):
            # As gRPC would: the call ends, and the client tries again.
            self.world.network.answer(exchange, None)
            return
        reply = answer.result()
        request = exchange.request
        assert not isinstance(request, pb.FindCoordinatorRequest)
        if reply is not None:
            group_id = group_of(request)
            self.world.situations.answered(self.slot_of(group_id), group_id, reply)
            history = self.world.histories[group_id]
            check(history, ticket, request, reply, whose=exchange.connection.client)
        self.world.network.answer(exchange, reply)

    def _on_append(self, records: Sequence[Record]) -> None:
        self._appended += 1
        world = self.world
        check_decision(self._deciding, records, world.partitions + PARTITIONS_OF_PRODUCERS)
        if not world.calm and world.chance.random() < world.plan.crash_rate:
            delay_s = world.chance.uniform(0, 2 * world.plan.latency_s)
            world.loop.outside(delay_s, self.host.crash_of, self.process)

    def _changed(self, group_id: str) -> None:
        self.watches[self.slot_of(group_id).number].touched = True

    def _notify(self, notice: pb.RebalanceNotice) -> None:
        connection = self._speakers.get((notice.group_id, notice.member_id))
        if connection is not None:
            self.world.network.push(connection, notice)

    def _go_away(self, group_ids: Collection[str], address: str) -> None:
        # A dictionary, because the order of a set is the memory's.
        notified = dict.fromkeys(
            (connection, group_id)
            for (group_id, _), connection in self._speakers.items()
            if group_id in group_ids
        )
        for connection, group_id in notified:
            self.world.situations.met["a member is sent to another coordinator"] += 1
            self.world.network.push(connection, pb.GoAway(group_id=group_id, address=address))
