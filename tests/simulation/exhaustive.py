"""
Small cases, searched as a whole: three members, until the second generation is complete, in every order.

The pure core and three clients of it are one state; whatever any of them can do next, the passing of time and a crash
(also between a write and its answers) lead to others. Broadly first, each state once. What is not searched: more
crashes, leaves, commits and repeated joins than the case allows for.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rota_coordinator.core.group.effects import Call, Effects
from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.group.join import Joining
from rota_coordinator.core.instants import MonotonicMs
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import HandoverSnapshot
from tests.conformance.members import TOPIC, assignment
from tests.simulation.history import instance_of, partitions_of
from tests.simulation.invariants import Violation
from tests.simulation.situations import Look
from tests.simulation.small_world import (
    GROUP,
    LIVES,
    MEMBERS,
    REBALANCE_MS,
    SESSION_MS,
    Case,
    Client,
    Phase,
    World,
    config,
)
from tests.simulation.watch import check_bounds, check_change, check_shape, is_same


class Steps:
    """Possible next steps in a state."""

    def __init__(self, world: World) -> None:
        self.world = world

    def all(self) -> Iterator[World]:
        """Every successor."""
        for number, client in enumerate(self.world.clients):
            # Before they have joined all are the same: they begin in the order of their numbers.
            if client.phase is Phase.OUT and not client.lives and number > self._begun():
                continue
            yield from self._client(number, client)
        at_ms = self.world.core.wake_at_ms(GROUP)
        if at_ms is not None:
            yield from self._perform(lambda world: pass_time(world, at_ms))
        if self.world.crashes < self.world.case.crashes:
            yield crashed(self.world.twin())

    def _begun(self) -> int:
        return sum(client.phase is not Phase.OUT or client.lives > 0 for client in self.world.clients)

    def _client(self, number: int, client: Client) -> Iterator[World]:
        case, world = self.world.case, self.world
        if client.phase in (Phase.OUT, Phase.KNOWN):
            yield from self._perform(lambda world: ask_join(world, number))
        if client.phase is Phase.JOINING and world.repeats < case.repeats:
            yield from self._perform(lambda world: ask_join(world, number, repeated=True))
        if client.phase is Phase.JOINED:
            yield from self._perform(lambda world: ask_sync(world, number))
        if client.phase in (Phase.JOINED, Phase.STABLE):
            yield from self._perform(lambda world: ask_heartbeat(world, number))
            if world.leaves < case.leaves:
                yield from self._perform(lambda world: ask_leave(world, number))
        if client.owns and world.commits < case.commits:
            yield from self._perform(lambda world: ask_commit(world, number))

    def _perform(self, act: Callable[[World], Effects]) -> Iterator[World]:
        """Write a decision and send its responses; or write it and crash before the responses."""
        world = self.world.twin()
        effects = act(world)
        world.log += tuple(effects.records)
        if effects.records and self.world.crashes < self.world.case.crashes:
            yield crashed(world.twin())
        answer(world, effects)
        check(self.world, world, effects)
        yield world


def ask_join(world: World, number: int, *, repeated: bool = False) -> Effects:
    """A client joins, or does so again because its connection broke."""
    client = world.clients[number]
    world.repeats += repeated
    request = pb.JoinGroupRequest(
        group_id=GROUP,
        member_id=client.member_id,
        group_instance_id=instance(world, number),
        client_id="member",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        protocols=[pb.Protocol(name="range")],
    )
    world.clients[number] = client._replace(phase=Phase.JOINING, owns=(), leads=())
    new_uuid = f"#{number}.{client.lives}.{world.repeats}"
    call = Call(number + (6 * MEMBERS if repeated else 0))
    return world.core.join(Joining(call, request, "/127.0.0.1", new_uuid), MonotonicMs(world.now_ms))


def ask_sync(world: World, number: int) -> Effects:
    """A client asks for its part; the leader says who has which."""
    client = world.clients[number]
    parts: dict[str, list[int]] = {member_id: [] for member_id in client.leads}
    for partition in range(MEMBERS if client.leads else 0):
        # Another way round each time, so that partitions move.
        parts[client.leads[(partition + client.generation) % len(client.leads)]].append(partition)
    request = pb.SyncGroupRequest(
        group_id=GROUP,
        generation_id=client.generation,
        member_id=client.member_id,
        group_instance_id=instance(world, number),
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            pb.Assignment(member_id=member_id, assignment=assignment(*partitions))
            for member_id, partitions in parts.items()
        ],
    )
    world.clients[number] = client._replace(phase=Phase.SYNCING)
    return world.core.handle(Call(number + MEMBERS), request, MonotonicMs(world.now_ms))


def ask_heartbeat(world: World, number: int) -> Effects:
    """A client says that it lives."""
    client = world.clients[number]
    request = pb.HeartbeatRequest(
        group_id=GROUP,
        generation_id=client.generation,
        member_id=client.member_id,
        group_instance_id=instance(world, number),
    )
    return world.core.handle(Call(number + 2 * MEMBERS), request, MonotonicMs(world.now_ms))


def ask_leave(world: World, number: int) -> Effects:
    """A client goes, and does not come back."""
    client = world.clients[number]
    world.leaves += 1
    world.clients[number] = client._replace(phase=Phase.GONE, owns=())
    leaving = pb.LeavingMember(member_id=client.member_id, group_instance_id=instance(world, number))
    request = pb.LeaveGroupRequest(group_id=GROUP, members=[leaving])
    return world.core.handle(Call(number + 3 * MEMBERS), request, MonotonicMs(world.now_ms))


def ask_commit(world: World, number: int) -> Effects:
    """A client commits the first of its partitions."""
    client = world.clients[number]
    world.commits += 1
    offset = pb.PartitionOffset(index=client.owns[0], offset=world.commits)
    request = pb.CommitOffsetsRequest(
        group_id=GROUP,
        generation_id=client.generation,
        member_id=client.member_id,
        group_instance_id=instance(world, number),
        topics=[pb.TopicOffsets(name=TOPIC, partitions=[offset])],
    )
    effects = world.core.commit(Call(number + 4 * MEMBERS), request, MonotonicMs(world.now_ms))
    group = world.core.groups.get(GROUP)
    if effects.records and group is not None and group.durable is not None:
        owner = next(
            (
                each.member_id
                for each in group.durable.members
                if client.owns[0] in partitions_of(each.assignment)
            ),
            "",
        )
        if (group.durable.generation_id, owner) != (client.generation, client.member_id):
            raise Violation("S4", f"{client.member_id} commits {client.owns[0]}, which is {owner}'s")
    return effects


def pass_time(world: World, at_ms: int) -> Effects:
    """Advance the clock to the next deadline without any request."""
    world.now_ms = max(world.now_ms, at_ms)
    return world.core.pass_time(GROUP, MonotonicMs(world.now_ms))


def crashed(world: World) -> World:
    """Kill the process and replay its log; clients whose requests were pending send them again."""
    world.crashes += 1
    world.core = folded(world)
    world.core.loaded(MonotonicMs(world.now_ms), HandoverSnapshot())
    if newest_offset(world.core) < world.acknowledged:
        raise Violation("S6", f"{world.acknowledged} was acknowledged, and is not in the log")
    again = {Phase.JOINING: Phase.KNOWN, Phase.SYNCING: Phase.JOINED}
    for number, client in enumerate(world.clients):
        phase = again.get(client.phase, client.phase)
        unnamed = phase is Phase.KNOWN and not client.member_id
        world.clients[number] = client._replace(phase=Phase.OUT if unnamed else phase)
    return world


def answer(world: World, effects: Effects) -> None:
    """The answers arrive."""
    for call, reply in effects.replies:
        number = call % MEMBERS
        client = world.clients[number]
        match reply:
            case pb.JoinGroupResponse() if client.phase is Phase.JOINING:
                world.clients[number] = joined(world, client, reply)
            case pb.SyncGroupResponse() if client.phase is Phase.SYNCING:
                world.clients[number] = synced(world, client, reply)
            case pb.HeartbeatResponse():
                world.clients[number] = obeyed(client, reply.error_code)
            case pb.CommitOffsetsResponse():
                error = reply.topics[0].partitions[0].error_code
                world.acknowledged = world.acknowledged if error else world.commits
                world.clients[number] = obeyed(client, error)
            case _:
                pass


def joined(world: World, client: Client, reply: pb.JoinGroupResponse) -> Client:
    """A client learns of a generation, or of its id."""
    if reply.error_code == pb.MEMBER_ID_REQUIRED:
        return client._replace(phase=Phase.KNOWN, member_id=reply.member_id, lives=client.lives + 1)
    if reply.error_code != pb.NONE:
        return obeyed(client, reply.error_code)
    generation, leader = reply.generation_id, instance_of(reply.leader)
    if generation not in world.leaders and generation < max(world.leaders, default=0):
        raise Violation("S3", f"generation {generation} is told first after {max(world.leaders)}")
    if world.leaders.setdefault(generation, leader) != leader:
        raise Violation("S3", f"generation {generation} has two leaders")
    is_new = reply.member_id != client.member_id
    return client._replace(
        phase=Phase.JOINED,
        member_id=reply.member_id,
        generation=generation,
        leads=tuple(member.member_id for member in reply.members if not reply.skip_assignment),
        lives=client.lives + is_new,
    )


def synced(world: World, client: Client, reply: pb.SyncGroupResponse) -> Client:
    """A client learns what it owns."""
    if reply.error_code != pb.NONE:
        return obeyed(client, reply.error_code)
    owns = tuple(partitions_of(reply.assignment))
    for partition in owns:
        owner = world.owners.setdefault((client.generation, partition), client.member_id)
        if instance_of(owner) != instance_of(client.member_id):
            raise Violation("S1", f"{owner} and {client.member_id} are both told {partition}")
    return client._replace(phase=Phase.STABLE, owns=owns, leads=())


def obeyed(client: Client, error: pb.ErrorCode.ValueType) -> Client:
    """Handle an error as a client does; one that lost its id twice stays away."""
    match error:
        case pb.NONE:
            return client
        case pb.REBALANCE_IN_PROGRESS | pb.ILLEGAL_GENERATION:
            return client._replace(phase=Phase.KNOWN, owns=(), leads=())
        case pb.UNKNOWN_MEMBER_ID | pb.FENCED_INSTANCE_ID:
            phase = Phase.OUT if client.lives < LIVES else Phase.GONE
            return Client(phase, lives=client.lives)
        case _:
            raise AssertionError(f"no client expects {pb.ErrorCode.Name(error)} here")


def check(before: World, after: World, effects: Effects) -> None:
    """The invariants of a state, and of the step to it."""
    group, was = after.group, before.group
    if group is None:
        return
    check_shape(group)
    check_bounds(group)
    if was is not None:
        check_change(group, Look.at(was), Look.at(group))
    if effects.records:
        written = folded(after)
        same = is_same(group, written.groups[GROUP])
        if not same or newest_offset(after.core) != newest_offset(written):
            raise Violation("S10", "the log and the running group say different things")


def folded(world: World) -> Groups:
    """Return the state that a restart reads."""
    core = Groups(config(world.case))
    for record in world.log:
        core.replay(record)
    return core


def newest_offset(core: Groups) -> int:
    """Of all partitions."""
    offsets = core.offsets.get(GROUP)
    return max((each.offset.offset for each in offsets.committed.values()), default=0) if offsets else 0


def instance(world: World, number: int) -> str | None:
    """The instance id of a client, if it is a static member."""
    return f"instance-{number}" if number < world.case.statics else None


@dataclass(slots=True)
class Found:
    """Size of the search."""

    states: int = 0
    transitions: int = 0
    final: int = 0
    depth: int = 0
    # States at the last depth that were not gone on from; 0: all was searched.
    open: int = 0
    # States from which no complete generation can be reached any more, if all was searched.
    stuck: int = 0


def search(case: Case, depth: int) -> Found:
    """All states up to so many steps from the start. Raises Violation."""
    first = World(case, Groups(config(case)))
    numbers = {first.key(): 0}
    before: list[list[int]] = [[]]
    final: list[int] = []
    level: Sequence[tuple[int, World]] = [(0, first)]
    found = Found()
    while level and found.depth < depth:
        found.depth += 1
        following = []
        for number, world in level:
            for successor in Steps(world).all():
                found.transitions += 1
                reached = numbers.setdefault(successor.key(), len(numbers))
                if reached < len(before):
                    before[reached].append(number)
                    continue
                before.append([number])
                if successor.is_final():
                    final.append(reached)
                else:
                    following.append((reached, successor))
        level = following
    found.states, found.final, found.open = len(numbers), len(final), len(level)
    found.stuck = 0 if level else len(numbers) - len(leading_to(final, before))
    return found


def leading_to(goals: Sequence[int], before: Sequence[Sequence[int]]) -> set[int]:
    """The states from which one of the goals can be reached."""
    reached, waiting = set(goals), list(goals)
    while waiting:
        for number in before[waiting.pop()]:
            if number not in reached:
                reached.add(number)
                waiting.append(number)
    return reached
