"""The members that are alive, those that trouble them, and the nemesis that troubles all."""

import asyncio
from collections.abc import Callable

from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member.identity import SavedMembership
from tests.conformance.members import TOPIC
from tests.simulation.loop import Process
from tests.simulation.member import DRAIN_S, REBALANCE_MS, REQUEST_S, SimulatedMember, commit_request
from tests.simulation.network import Request
from tests.simulation.plan import LEASE_S, SESSION_MS, SESSION_S
from tests.simulation.world import World

# A drain, what passes until the sidecar is told to end, and its end.
TERMINATION_S = 2 * DRAIN_S + 2
# After it the process is killed, at once or so much later.
KILLED_LATER_S = 3.0


class Crew:
    """The members that are alive, by number."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.members: dict[int, SimulatedMember] = {}
        # Second processes of static members, that somebody started by mistake.
        self.doubles: list[SimulatedMember] = []
        # Those that were told to go and are not gone yet.
        self._leaving: dict[int, SimulatedMember] = {}
        # What a member's sidecar remembers outlives its process.
        self._volumes: dict[int, dict[str, SavedMembership]] = {}

    def member(self, number: int, volume: dict[str, SavedMembership]) -> SimulatedMember:
        """A new process with this number; a static one has its number as its instance."""
        plan = self.world.plan
        group_id = plan.groups[number % len(plan.groups)]
        instance = f"instance-{number}" if number < plan.statics else None
        return SimulatedMember(self.world, group_id, f"member-{number}", instance, volume)

    def start(self, number: int) -> None:
        """Start a member, if it is not there; as often as not the folder of the last one is lost."""
        if number in self.members and self.members[number].has_ended:
            self.members.pop(number).kill()
        leaving = self._leaving.get(number)
        if leaving is not None and leaving.instance is not None and leaving.process.alive:
            return  # an instance is handed on when the process that has it is gone, unless it is doubled
        if number not in self.members:
            if self.world.chance.random() < 0.3:
                self._volumes.pop(number, None)
            elif self._volumes.get(number):
                self.world.step("a member takes up who it was")
            self.members[number] = self.member(number, self._volumes.setdefault(number, {}))
            self.members[number].start()

    def double(self, number: int) -> None:
        """Start a second process of the same static member; they fence each other until one is gone."""
        double = self.member(number, {})
        if double.instance is not None and not self.doubles:
            self.world.fault("a double started")
            self.doubles.append(double)
            double.start()
            self.world.loop.outside(2 * SESSION_S, self._end_double)

    def kill(self, number: int) -> None:
        """Kill the process (SIGKILL): it notifies no other process."""
        if number in self.members:
            self.world.fault("member killed")
            self.members.pop(number).kill()
            if not self.world.calm and self.world.chance.random() < 0.5:
                # Of a sidecar alone, whose pod starts it again at once.
                self.world.loop.outside(self.world.chance.uniform(0.1, 1), self.start, number)

    def kill_leaders(self) -> list[int]:
        """Kill those that lead; a static one loses its folder too, and comes back by its instance id alone."""
        leaders = [number for number, member in self.members.items() if member.core.identity.leads]
        for number in leaders:
            self.kill(number)
            if number < self.world.plan.statics:
                self._volumes.pop(number, None)
        return leaders

    def restart(self, member: object) -> None:
        """Its sidecar crashes and is back at once, if it is one of these."""
        for number, each in list(self.members.items()):
            if each is member:
                self.kill(number)
                self.start(number)

    def leave(self, number: int) -> None:
        """A clean stop; the process ends when that is said, or a little later."""
        member = self.members.pop(number, None)
        if member is not None:
            self.world.fault("member left")
            # Its folder is in use until it has ended: whoever is started meanwhile has another one.
            self._volumes.pop(number, None)
            self._leaving[number] = member
            if not self.world.calm and self.world.chance.random() < 0.5:
                member.terminate()
            else:
                member.leave()
            later_s = self.world.chance.uniform(0.05, KILLED_LATER_S)
            self.world.loop.outside(TERMINATION_S + later_s, member.kill)

    def pause(self, number: int) -> None:
        """SIGSTOP: for about a session, or for so long that others have taken over and gone on when it wakes."""
        if number in self.members:
            self.world.fault("member paused")
            sessions = self.world.chance.choice([(0.95, 1.6), (0.95, 1.6), (0.95, 1.6), (0, 5)])
            self.members[number].process.pause(SESSION_S * self.world.chance.uniform(*sessions))

    def wake(self) -> None:
        """Start all processes."""
        for member in self.members.values():
            member.process.wake()
        self._end_double()

    def stop(self) -> None:
        """All members end."""
        for member in self.members.values():
            member.kill()
        self.members.clear()

    def _end_double(self) -> None:
        while self.doubles:
            self.doubles.pop().kill()


class Nemesis:
    """Breaks things, one after the other."""

    def __init__(self, world: World, crew: Crew) -> None:
        self.world = world
        self.crew = crew
        self._acts: dict[str, Callable[[int], None]] = {
            "pause a member": crew.pause,
            "kill a member": crew.kill,
            "leave": crew.leave,
            "double": crew.double,
            "pause the coordinator": self._pause_coordinator,
            "cut": self._cut,
            "rejoin": self._rejoin,
            "all leave": self._all_leave,
            "cut off a coordinator's store": self._cut_store,
            "stop a coordinator": self._stop_coordinator,
        }

    def act(self) -> None:
        """Perform one act; half of the acts start a stopped process again."""
        chance, plan = self.world.chance, self.world.plan
        self.crew.start(chance.randrange(plan.members))
        if plan.acts:
            self._acts[chance.choice(plan.acts)](chance.randrange(plan.members))

    def _pause_coordinator(self, _number: int) -> None:
        host = self.world.chance.choice(self.world.hosts)
        if host.process is not None:
            self.world.fault("coordinator paused")
            # Half of them end within a session: only then nobody may be given up for what was not heard.
            sessions = self.world.chance.choice([(0.4, 1), (0, 3)])
            host.process.pause(SESSION_S * self.world.chance.uniform(*sessions))

    def _cut(self, number: int) -> None:
        """Between one member and the coordinator nothing arrives for a while, or in one direction."""
        member = self.crew.members.get(number)
        if member is None:
            return
        chance, network = self.world.chance, self.world.network
        directions = chance.choice([(0,), (1,), (0, 1)])
        hosts = chance.choice([self.world.hosts, self.world.hosts[:1]])
        cuts = {(member.process, host, direction) for host in hosts for direction in directions}
        network.cuts |= cuts
        self.world.fault("connection cut")
        self.world.loop.outside(chance.uniform(0.1, 2 * SESSION_S), network.cuts.difference_update, cuts)

    def _cut_store(self, _number: int) -> None:
        """A coordinator and the store lose sight of each other; on one machine they cannot."""
        process = self.world.chance.choice(self.world.hosts).process
        if process is not None and len(self.world.hosts) > 1:
            self.world.step("store cut")
            self.world.disk.cut.add(process)
            seconds = self.world.chance.uniform(0.1, 3 * LEASE_S)
            self.world.loop.outside(seconds, self.world.disk.cut.discard, process)

    def _stop_coordinator(self, _number: int) -> None:
        self.world.chance.choice(self.world.hosts).stop()

    def _rejoin(self, number: int) -> None:
        if number in self.crew.members:
            self.world.step("rejoin")
            self.crew.members[number].rejoin()

    def _all_leave(self, _number: int) -> None:
        if self.world.chance.random() < 0.1:
            for number in list(self.crew.members):
                self.crew.leave(number)


class Stranger:
    """A client that sends invalid requests, and administrators: a request that is not allowed changes nothing."""

    def __init__(self, world: World, crew: Crew) -> None:
        self.world = world
        self.crew = crew
        self.process = Process(world.loop)

    def start(self) -> None:
        """Trouble them until the world is healed."""
        self.process.spawn(self._live())

    async def _live(self) -> None:
        while not self.world.calm:
            await asyncio.sleep(self.world.chance.expovariate(1))
            host = self.world.chance.choice(self.world.hosts)
            connection = host.connect(self.process, lambda notice: None)
            try:
                await self.world.network.ask(connection, self._request(), REQUEST_S)
            except (ConnectionError, TimeoutError):
                self.world.step("a stranger is not answered")

    def _request(self) -> Request:
        chance, plan = self.world.chance, self.world.plan
        group_id = chance.choice(plan.groups)
        known = [member for member in self.crew.members.values() if member.group_id == group_id]
        member_id = chance.choice(known).member_id if known and chance.random() < 0.7 else "nobody"
        generation = max((member.generation for member in known), default=0) + chance.randint(-2, 1)
        history = self.world.histories[group_id]
        offsets = {chance.randrange(plan.partitions): chance.randrange(100)}
        match chance.randrange(7):
            case 0:
                commit = history.committing(member_id, generation, offsets)
                # Not as the member that is meant: its own commits could be told from this one by nobody.
                return commit_request(group_id, commit, instance="instance-nobody")
            case 1:
                commit = history.committing("", -1, offsets)
                return commit_request(group_id, commit)
            case 2:
                commit = history.committing("", -1, offsets)
                return alter_request(group_id, offsets, commit.number)
            case 3:
                return pb.SyncGroupRequest(
                    group_id=group_id,
                    generation_id=generation,
                    member_id="nobody",
                    protocol_type="consumer",
                    protocol_name="range",
                )
            case 4:
                return pb.HeartbeatRequest(
                    group_id=group_id, generation_id=generation + 1, member_id=member_id
                )
            case 5:
                return admin.DeleteGroupsRequest(group_ids=[group_id])
            case _:
                # Kept by no client: an id that will never be used.
                return pb.JoinGroupRequest(
                    group_id=group_id,
                    client_id="stranger",
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=REBALANCE_MS,
                    protocol_type="consumer",
                    protocols=[pb.Protocol(name=chance.choice(["range", "other"]))],
                )


def alter_request(group_id: str, offsets: dict[int, int], number: int) -> admin.AlterOffsetsRequest:
    """A reset of offsets, numbered as a commit is."""
    partitions = [
        pb.PartitionOffset(index=index, offset=offset, metadata=str(number))
        for index, offset in offsets.items()
    ]
    return admin.AlterOffsetsRequest(
        group_id=group_id, topics=[pb.TopicOffsets(name=TOPIC, partitions=partitions)]
    )
