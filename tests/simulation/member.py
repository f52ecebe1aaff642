"""A simulated member: the shipping member core, with a shell in virtual time, and an application that works and commits."""

import asyncio
from collections.abc import Mapping
from functools import partial

from google.protobuf.message import Message

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.assignors.model import Topic
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member import states as st
from rota_sidecar.core.member.config import MemberConfig, Strategy, Subscription
from rota_sidecar.core.member.identity import SavedMembership
from rota_sidecar.core.member.member import Member
from rota_sidecar.membership import leader
from tests.conformance.members import TOPIC
from tests.simulation.application import Application
from tests.simulation.history import Commit
from tests.simulation.host import Host
from tests.simulation.loop import Process
from tests.simulation.network import Connection, Notice
from tests.simulation.plan import SESSION_MS, SESSION_S
from tests.simulation.shell import DeliveryShell
from tests.simulation.strategies import STRATEGIES
from tests.simulation.world import World

HEARTBEAT_MS = 1_000
REQUEST_S = 4.0
REBALANCE_MS = 2 * SESSION_MS
JOIN_S = REBALANCE_MS / 1000 + 5
DRAIN_S = 4.0
TOPICS_REFRESH_S = 1.0
# A supervisor starts what has failed again, after a while.
RESTART_S = 2.0


class SimulatedMember:
    """One process. `volume` outlives it, as the folder of a sidecar does."""

    def __init__(
        self, world: World, group_id: str, name: str, instance: str | None, volume: dict[str, SavedMembership]
    ) -> None:
        self.world = world
        self.group_id = group_id
        self.history = world.histories[group_id]
        self.name = name
        self.instance = instance
        self.volume = volume
        self.process = Process(world.loop)
        # Fenced, or told to go: nobody starts it again.
        self.has_ended = False
        self._connection: Connection | None = None
        self._host: Host | None = None
        self._alarm: asyncio.TimerHandle | None = None
        # When it last left a round: in one its session does not end.
        self.round_ended_s = 0.0
        self._events: list[on.Event] = []
        self._versions = 0
        self._begin()

    def _begin(self) -> None:
        world = self.world
        self.core = Member(
            MemberConfig(
                self.group_id,
                client_id="member",
                instance_id=self.instance,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                request_timeout_ms=int(REQUEST_S * 1000),
            ),
            Subscription((TOPIC,)),
            self._strategies(),
        )
        self.app = Application(world, self) if world.deliveries is None else DeliveryShell(world, self)

    def _strategies(self) -> tuple[Strategy, ...]:
        names = self.world.plan.strategies
        offered = names[self._versions % len(names) :] + names[: self._versions % len(names)]
        return tuple(Strategy(name, cooperative=STRATEGIES[name].cooperative) for name in offered)

    @property
    def member_id(self) -> str:
        return self.core.identity.member_id

    @property
    def generation(self) -> int:
        return self.core.identity.generation

    @property
    def stable(self) -> bool:
        return isinstance(self.core.state, st.Stable)

    @property
    def in_round(self) -> bool:
        """Return whether it waits for a generation or for its part of one."""
        return isinstance(self.core.state, st.Joining | st.Syncing)

    @property
    def owned(self) -> list[int]:
        """The partitions that it works on."""
        return sorted(self.app.working)

    def start(self) -> None:
        """Be a member from now on; as who it was, if it is known in its group."""
        self.process.spawn(self._live())

    async def _live(self) -> None:
        self.feed(on.Start(self.volume.get(self.name)))
        if self.world.has_grown:
            self.watch_topics()
        await self.app.run()

    def watch_topics(self) -> None:
        """Look at the topic from now on."""
        self.process.spawn(self._look_at_topics())

    async def _look_at_topics(self) -> None:
        while not self.has_ended:
            self.feed(on.TopicsDescribed({TOPIC: self.world.partitions}))
            await asyncio.sleep(TOPICS_REFRESH_S)

    def kill(self) -> None:
        """Kill the process (SIGKILL): it notifies no other process."""
        self.history.gives_up(self.process)
        self.process.kill()
        if self._connection is not None:
            self.world.network.reset(self._connection)

    def leave(self) -> None:
        """SIGTERM. Called from outside of the process."""
        ending = on.End(int(DRAIN_S * 1000), "told to", leave_static=True)
        self.world.loop.call_soon(self.feed, ending, context=self.process.context)

    def terminate(self) -> None:
        """The pod is deleted. Called from outside of the process."""
        app, process = self.app, self.process
        if isinstance(app, DeliveryShell):
            # A process that is killed before never begins it.
            self.world.loop.call_soon(lambda: process.spawn(app.terminate()), context=process.context)
        else:
            self.leave()

    def rejoin(self) -> None:
        """Rejoin with another preferred strategy."""
        self._versions += 1
        changed = on.OfferStrategies(self._strategies())
        self.world.loop.call_soon(self.feed, changed, context=self.process.context)

    # The shell: events in, actions out.

    def feed(self, event: on.Event) -> None:
        """Something happened. What it leads to may be the next event."""
        self._events.append(event)
        if len(self._events) > 1:
            return
        while self._events:
            was_in_round = self.in_round
            for action in self.core.step(self._events[0], self._now_ms()):
                self._perform(action)
            if was_in_round and not self.in_round:
                self.round_ended_s = self.world.loop.now_s
            del self._events[0]
        self._set_alarm()

    def _now_ms(self) -> int:
        return int(self.world.loop.now_s * 1000)

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        alarm = self.core.alarm
        if alarm is not None:
            wait_ms = max(alarm.at_ms - self._now_ms(), 0) + alarm.spread_ms * self.world.chance.random()
            self._alarm = self.world.loop.call_later(wait_ms / 1000 + 0.001, self.feed, on.Tick())

    def _perform(self, action: do.Action) -> None:
        match action:
            case do.FindCoordinator():
                self.process.spawn(self._find(action))
            case do.SendRequest():
                self._send(action)
            case do.ComputeAssignment():
                self.world.loop.call_soon(self._lead, action)
            case do.SaveMembership():
                self.volume[self.name] = action.saved
            case do.DeleteMembership():
                self.volume.pop(self.name, None)
            case _:
                self._on_action(action)

    def _on_action(self, action: do.Action) -> None:
        match action:
            case do.Ended():
                self._ended(action)
            case do.Joined():
                self.app.generation = action.generation
                self.history.check_incarnation(action.generation, action.incarnation)
                if not action.leader:
                    self.world.situations.met["a member takes up its generation after a crash"] += 1
            case do.Problem():
                self.world.step("a member sees a problem")
            case _:
                self.app.on_member_action(action)

    def _ended(self, action: do.Ended) -> None:
        self.history.gives_up(self.process)
        self.has_ended = True
        if action.failed and "FENCED" not in action.reason:
            self.world.loop.call_later(RESTART_S, self._restart)

    def _restart(self) -> None:
        self.has_ended = False
        self._begin()
        self.start()

    async def _find(self, action: do.FindCoordinator) -> None:
        """Ask any coordinator for the group's, and connect to that."""
        world = self.world
        if self._connection is not None:
            world.network.reset(self._connection)
            self._connection = None
        if not world.calm and world.chance.random() < 0.3:
            # A name that takes a while to be looked up: what others say meanwhile comes first.
            await asyncio.sleep(world.chance.uniform(0, 2))
        host = world.chance.choice(world.hosts)
        connection = host.connect(self.process, self._noticed)
        try:
            request = pb.FindCoordinatorRequest(group_ids=[self.group_id])
            reply = await world.network.ask(connection, request, action.within_ms / 1000)
        except (ConnectionError, TimeoutError) as error:
            self.feed(on.CallFailed(action.call, str(error)))
            return
        assert isinstance(reply, pb.FindCoordinatorResponse)
        found = reply.coordinators[0]
        if found.error_code == pb.NONE:
            if found.address != host.address:
                world.network.reset(connection)
                host = world.host_at(found.address)
                connection = host.connect(self.process, self._noticed)
            self._connection, self._host = connection, host
        self.feed(on.CoordinatorFound(action.call, found.error_code))

    def _send(self, action: do.SendRequest) -> None:
        if self._connection is None:
            self.world.loop.call_soon(self.feed, on.CallFailed(action.call, "not connected"))
            return
        sent_s = self.world.loop.now_s
        answer = self.world.network.ask(self._connection, action.request, action.within_ms / 1000)
        answer.add_done_callback(partial(self._answered, action, sent_s))

    def _answered(self, action: do.SendRequest, sent_s: float, answer: "asyncio.Future[Message]") -> None:
        if answer.exception() is not None:
            self.feed(on.CallFailed(action.call, str(answer.exception())))
            return
        reply = answer.result()
        assert isinstance(
            reply,
            pb.JoinGroupResponse
            | pb.SyncGroupResponse
            | pb.HeartbeatResponse
            | pb.LeaveGroupResponse
            | pb.CommitOffsetsResponse
            | pb.FetchOffsetsResponse,
        )
        beats = isinstance(reply, pb.HeartbeatResponse) and reply.error_code == pb.NONE
        if beats and action.request.generation_id == self.generation:  # type: ignore[union-attr]
            for partition in self.core.held:
                self.history.holds(
                    self.process,
                    self.member_id,
                    partition.number,
                    self.world.loop.now_s,
                    sent_s + SESSION_S,
                )
        self.feed(on.ResponseReceived(action.call, reply))

    def _lead(self, order: do.ComputeAssignment) -> None:
        members = leader.read_members(order)
        incarnation = leader.incarnation_for(order, members, self._now_ms())
        topics = {TOPIC: Topic(self.world.partitions)}
        self.feed(leader.compute_assignment(order, members, topics, STRATEGIES[order.strategy], incarnation))

    def _noticed(self, notice: Notice) -> None:
        """The group starts to rebalance, or is served elsewhere."""
        match notice:
            case pb.GoAway():
                self.feed(on.CoordinatorLost("it goes away"))
            case pb.RebalanceNotice():
                self.feed(on.RebalanceNoticed(notice.member_id, notice.generation_id))

    def say_late(self, offsets: Mapping[int, int], generation: int) -> None:
        """A client without this core commits what is not its own any more: the coordinator has to refuse it."""
        if self._connection is not None and self.member_id:
            commit = self.history.committing(self.member_id, generation, dict(offsets))
            commit.is_honest = False
            request = commit_request(self.group_id, commit, self.instance)
            answer = self.world.network.ask(self._connection, request, REQUEST_S)
            answer.add_done_callback(lambda done: done.exception())

    def heartbeat_late(self, member_id: str, generation: int) -> None:
        """A client without this core still takes itself for a member."""
        if self._host is not None:
            request = pb.HeartbeatRequest(
                group_id=self.group_id,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=self.instance,
            )
            # On a connection of its own: the other one is about to be given up.
            connection = self._host.connect(self.process, lambda notice: None)
            answer = self.world.network.ask(connection, request, REQUEST_S)
            answer.add_done_callback(lambda done: done.exception())


def commit_request(group_id: str, commit: Commit, instance: str | None = None) -> pb.CommitOffsetsRequest:
    """A commit, with its number as the metadata of each offset."""
    partitions = [
        pb.PartitionOffset(index=index, offset=offset, leader_epoch=-1, metadata=str(commit.number))
        for index, offset in commit.offsets.items()
    ]
    return pb.CommitOffsetsRequest(
        group_id=group_id,
        generation_id=commit.generation,
        member_id=commit.member_id,
        group_instance_id=instance,
        topics=[pb.TopicOffsets(name=TOPIC, partitions=partitions)],
    )
