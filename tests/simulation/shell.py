"""The shell around the shipping delivery core, in virtual time: between a simulated member and its application."""

import asyncio
from typing import TYPE_CHECKING

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import CommitMode, DeliveryConfig, Reset
from rota_sidecar.core.delivery.delivery import Delivery
from rota_sidecar.core.ledger.batches import Ordering
from rota_sidecar.core.ledger.rules import Rules
from rota_sidecar.core.member import actions as said
from rota_sidecar.core.member import events as to
from rota_sidecar.core.member import states as st
from rota_sidecar.core.member.partitions import Offset, Partition
from tests.simulation.history import SEPARATOR, Done
from tests.simulation.invariants import Violation
from tests.simulation.plan import DeliveryPlan
from tests.simulation.topic import end_at, is_record, read
from tests.simulation.working_application import WorkingApplication
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.member import SimulatedMember

LOOK_S = 0.05
LEAVE_S = 2.0
# Of a pod that is deleted: the drain, and what passes until the application has ended and until the sidecar is told to end.
DRAIN_S, GOODBYE_S, END_S = 4.0, 0.3, 1.5
# What a timer and a turn take.
LATE_S = 0.3


class DeliveryShell:
    """Events in, actions out; what the core wants of its member, its engine and its application is done here."""

    def __init__(self, world: World, member: "SimulatedMember") -> None:
        assert world.deliveries is not None
        self.world = world
        self.member = member
        self.plan: DeliveryPlan = world.deliveries
        self.core = Delivery(self._config())
        self.working_application = WorkingApplication(self)
        self.generation = -1
        self._events: list[on.Event] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._commits: dict[int, dict[Partition, int]] = {}
        self._wanted: dict[int, asyncio.Task[None]] = {}
        self._began: set[int] = set()
        # Of this tenure, from where it began.
        self._finished: dict[Partition, Done] = {}
        self._committed: dict[Partition, int] = {}
        # A commit of this partition got no answer, or a refusal.
        self._in_doubt: set[Partition] = set()
        self._losses = 0
        self._drained = asyncio.Event()

    def _config(self) -> DeliveryConfig:
        plan = self.plan
        return DeliveryConfig(
            self.member.group_id,
            rules=Rules(
                ordering=plan.ordering,
                takes_many=plan.takes_many,
                backoff_ms=50,
                backoff_max_ms=400,
            ),
            concurrency=plan.concurrency,
            processing_timeout_ms=int(plan.processing_timeout_s * 1000),
            commit_mode=CommitMode.SYNC if plan.sync else CommitMode.PERIODIC,
            commit_interval_ms=800,
            initial_offset=Reset.EARLIEST,
            on_offset_expired=Reset.EARLIEST,
            dead_letter_topic="dead_letters",
        )

    @property
    def working(self) -> dict[int, int]:
        """Return the assigned partitions from which records can be delivered."""
        return {partition.number: 0 for partition in self.core.held}

    async def run(self) -> None:
        """Work until the member has ended."""
        self.member.process.spawn(self.working_application.run())
        while not self.member.has_ended:
            await asyncio.sleep(1)

    async def terminate(self) -> None:
        """The pod is deleted: drain, let the application say goodbye, then end the member."""
        chance = self.world.chance
        is_dynamic = self.member.instance is None
        self.feed(on.Drain(self._now_ms() + int(DRAIN_S * 1000), leaves_group=is_dynamic))
        await self._drained.wait()
        await asyncio.sleep(chance.uniform(0, GOODBYE_S))
        self.working_application.say_goodbye()
        await asyncio.sleep(chance.uniform(0, END_S))
        self.member.feed(to.End(int(DRAIN_S * 1000), "told to", leave_static=True))

    # From the member.

    def on_member_action(self, action: said.Action) -> None:
        """The member's core says something that concerns deliveries."""
        match action:
            case said.Committed():
                self._note(action)
                self.feed(on.Committed(action.request, action.errors))
            case said.Fetched():
                self._found(action)
            case said.CoordinatorRegained():
                self.feed(on.CoordinatorRegained())
            case said.Assign() | said.Revoke() | said.Revoked() | said.Lost():
                self._changed(action)
            case _:
                raise AssertionError(f"nobody here knows what {action} is")

    def _changed(self, action: said.Assign | said.Revoke | said.Revoked | said.Lost) -> None:
        match action:
            case said.Assign():
                for partition in action.partitions:
                    self._finished.pop(partition, None)
                    self._committed.pop(partition, None)
                    self._in_doubt.discard(partition)
                self.feed(on.Assigned(action.tenure, action.partitions))
            case said.Revoke():
                notify, self.world.on_revoke = self.world.on_revoke, None
                if notify is not None:
                    notify(self.member)
                self.feed(on.Revoke(action.revocation, action.partitions, action.deadline_ms))
            case said.Revoked():
                self._let_go(action.partitions)
                self.feed(on.Revoked(action.partitions))
            case said.Lost():
                self._losses += 1
                for partition in action.partitions:
                    self.member.history.gives_up_one(self.member.process, partition.number)
                self.feed(on.Lost(action.partitions, action.reason))

    def _let_go(self, partitions: frozenset[Partition]) -> None:
        """Handed over in good order, unless something was left in hand or not answered."""
        for partition in sorted(partitions):
            self.member.history.gives_up_one(self.member.process, partition.number)
            finished = self._finished.get(partition)
            # One commit is under way at a time: while it has no answer the others wait.
            is_in_doubt = bool(self._commits) or partition in self._in_doubt
            if is_in_doubt or self.working_application.holds(partition) or finished is None:
                continue
            committed = self._committed.get(partition, 0)
            if any(is_record(offset) for offset in range(committed, finished.end)):
                raise Violation(
                    "S9",
                    f"{self.member.name} lets {partition} go at {committed}, and it has done all before {finished.end}",
                )
            self.member.history.releases[partition.number] = committed
            self.world.situations.met["a partition is handed over in good order"] += 1

    def did(self, partition: Partition, offset: int) -> None:
        """The application has done a record."""
        self.member.history.did(partition.number, offset, offset + 1)
        if partition in self._finished:
            self._finished[partition].add(offset, offset + 1)

    # The core.

    def feed(self, event: on.Event) -> None:
        """Something happened. What it leads to may be the next event."""
        self._events.append(event)
        if len(self._events) > 1:
            return
        while self._events:
            for action in self.core.step(self._events[0], self._now_ms()):
                self._perform(action)
            del self._events[0]
        self._set_alarm()
        self._check_progress()

    def _now_ms(self) -> int:
        return int(self.world.loop.now_s * 1000)

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self.core.alarm is not None:
            wait_ms = max(self.core.alarm - self._now_ms(), 0)
            self._alarm = self.world.loop.call_later(wait_ms / 1000 + 0.001, self.feed, on.Tick())

    def _check_progress(self) -> None:
        """L5: who hangs over a record loses its partitions in time."""
        since_s = self.working_application.oldest_s(set(self.core.held))
        limit_s = self.plan.processing_timeout_s + LATE_S
        oldest = self.plan.ordering is not Ordering.PARTITION and since_s is not None
        is_late = oldest and since_s is not None and self.world.loop.now_s > since_s + limit_s
        if is_late and not self.member.process.stopped_s and isinstance(self.member.core.state, st.Stable):
            raise Violation(
                "L5",
                f"the application of {self.member.name} holds a record since {since_s} at {self.world.loop.now_s}",
            )

    def _perform(self, action: do.Action) -> None:
        match action:
            case do.ListOffsets() | do.Fetch() | do.StopFetching() | do.WriteDeadLetter():
                self._ask_engine(action)
            case do.FetchCommitted() | do.Commit() | do.ReleasePartitions() | do.Leave() | do.Rejoin():
                self._ask_member(action)
            case do.AssignmentEvent() | do.Deliver() | do.Refuse():
                self._send_to_application(action)
            case do.Drained():
                self._drained.set()
            case do.Settled() | do.Problem() | do.Answer():
                pass

    def _send_to_application(self, action: do.AssignmentEvent | do.Deliver | do.Refuse) -> None:
        match action:
            case do.AssignmentEvent():
                if self.working_application.is_attached:
                    self.working_application.notify(action)
            case do.Deliver():
                self.working_application.deliver(action)
            case do.Refuse():
                self.working_application.refuse(action)

    def _ask_member(
        self, action: do.FetchCommitted | do.Commit | do.ReleasePartitions | do.Leave | do.Rejoin
    ) -> None:
        match action:
            case do.FetchCommitted():
                self.member.feed(to.Fetch(action.request, sorted(action.partitions)))
            case do.Commit():
                self._commit(action)
            case do.ReleasePartitions():
                self.member.feed(to.PartitionsReleased(action.revocation))
            case do.Leave() | do.Rejoin():
                self._come_and_go(action)

    def _come_and_go(self, action: do.Leave | do.Rejoin) -> None:
        if isinstance(action, do.Rejoin):
            self.member.feed(to.Start())
            return
        self.world.situations.met["a member leaves because its application hangs"] += not action.is_drained
        self.member.feed(to.End(int(LEAVE_S * 1000), action.reason, final=False))
        self.member.process.spawn(self._stand())

    async def _stand(self) -> None:
        while not isinstance(self.member.core.state, st.Down | st.Stopped):
            await asyncio.sleep(LOOK_S)
        self.feed(on.LeftGroup())

    # The coordinator.

    def _commit(self, action: do.Commit) -> None:
        identity = self.member.core.identity
        offsets = {partition.number: each.offset for partition, each in action.offsets.items()}
        commit = self.member.history.committing(identity.member_id, identity.generation, offsets)
        commit.sender = (self.member.process, self._losses)
        self.member.history.check_done(commit)
        self._commits[action.request] = {partition: each.offset for partition, each in action.offsets.items()}
        wrapped: dict[Partition, Offset] = {
            partition: each._replace(metadata=f"{commit.number}{SEPARATOR}{each.metadata}")
            for partition, each in action.offsets.items()
        }
        self.member.feed(to.Commit(action.request, wrapped))

    def _note(self, outcome: said.Committed) -> None:
        offsets = self._commits.pop(outcome.request, {})
        for partition, error in outcome.errors.items():
            if error != pb.NONE:
                self._in_doubt.add(partition)
            elif partition in offsets:
                self._committed[partition] = max(self._committed.get(partition, 0), offsets[partition])

    def _found(self, found: said.Fetched) -> None:
        offsets = {
            Partition(topic.name, each.index): on.Stored(
                each.offset, each.metadata.partition(SEPARATOR)[2], each.leader_epoch, each.error_code
            )
            for topic in found.topics
            for each in topic.partitions
        }
        self.feed(on.CommittedFetched(found.request, found.error, offsets))

    # The engine.

    def _ask_engine(self, action: do.ListOffsets | do.Fetch | do.StopFetching | do.WriteDeadLetter) -> None:
        match action:
            case do.ListOffsets():
                self.member.process.spawn(self._look_up(action))
            case do.Fetch():
                self._stop(action.delivery_epoch)
                self._wanted[action.delivery_epoch] = self.member.process.spawn(self._read(action))
            case do.StopFetching():
                self._stop(action.delivery_epoch)
            case do.WriteDeadLetter():
                self.member.process.spawn(self._write(action))

    def _stop(self, delivery_epoch: int) -> None:
        task = self._wanted.pop(delivery_epoch, None)
        if task is not None:
            task.cancel()

    def _bounds(self) -> on.Bounds:
        return on.Bounds(0, end_at(self.world.loop.now_s))

    async def _look_up(self, action: do.ListOffsets) -> None:
        await asyncio.sleep(self.world.chance.uniform(0, 0.1))
        self.feed(on.OffsetsListed(action.request, dict.fromkeys(action.partitions, self._bounds())))

    async def _read(self, action: do.Fetch) -> None:
        chance = self.world.chance
        if action.delivery_epoch not in self._began:
            self._began.add(action.delivery_epoch)
            self.member.history.begins(action.partition.number, action.offset)
            self._finished[action.partition] = Done()
            self._finished[action.partition].add(0, action.offset)
            self._committed[action.partition] = action.offset
        await asyncio.sleep(chance.uniform(0, 0.02))
        while action.offset >= self._bounds().end:
            await asyncio.sleep(0.2)
        batches, following = read(action.offset, self._bounds().end, chance.randint(1, 3))
        self._wanted.pop(action.delivery_epoch, None)
        self.feed(on.Read(action.delivery_epoch, batches, following, self._bounds()))

    async def _write(self, action: do.WriteDeadLetter) -> None:
        await asyncio.sleep(self.world.chance.uniform(0, 0.3))
        if not self.world.calm and self.world.chance.random() < self.plan.dead_letter_error_rate:
            self.world.situations.met["a dead letter cannot be written"] += 1
            self.feed(on.DeadLetterWritten(action.dead_letter, "the topic is not there"))
            return
        self.world.situations.met["a dead letter is written"] += 1
        # Only from here on a commit may pass it.
        self.did(action.partition, action.batch_slice.first)
        self.feed(on.DeadLetterWritten(action.dead_letter))
