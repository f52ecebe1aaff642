"""
The asyncio driver of the delivery core: owns its clock and timer, and performs its actions on backend, member and
application.

Events of member, backend and application are posted to one queue and handled in FIFO order on one event loop. An
unexpected exception ends the process.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, cast

from typing_extensions import override

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.application.port import Application, Deliveries
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import DeliveryConfig
from rota_sidecar.core.delivery.delivery import Delivery
from rota_sidecar.core.member import actions as member_do
from rota_sidecar.core.member import events as member_on
from rota_sidecar.core.member.config import Subscription
from rota_sidecar.core.member.partitions import Partition, Tenure
from rota_sidecar.delivery.attached_application import AttachedApplication
from rota_sidecar.delivery.effects import EffectPorts, EffectRunner
from rota_sidecar.delivery.group_offsets import Fetched, GroupOffsets
from rota_sidecar.delivery.manual_assignment import ManualAssignment
from rota_sidecar.delivery.observer import Observer, Observers
from rota_sidecar.delivery.participation import Participation
from rota_sidecar.engines.port import CoordinatorEvent, Unreachable
from rota_sidecar.engines.records import FetchRequest, Records
from rota_sidecar.membership.driver import MemberEvent, Membership, StateChanged, wait_until_set

# Limit of queued events, far above the number that one turn of the loop causes.
EVENTS_MAX = 10_000
# Limit of requests under way.
REQUESTS_MAX = 1_000
OFFSETS_RETRY_S = 0.2
OFFSETS_LATER = {pb.NOT_COORDINATOR, pb.COORDINATOR_NOT_AVAILABLE, pb.COORDINATOR_LOAD_IN_PROGRESS}


class DeliveryDriver(Deliveries):
    """
    Driver of one delivery core; create and use it on a running loop. `connect` and `attach_member` precede `run`.

    Invariant: events are handled one at a time, in the order in which they were enqueued.
    """

    def __init__(self, config: DeliveryConfig, observers: Sequence[Observer], leave_timeout_ms: int) -> None:
        self._delivery = Delivery(config)
        self._config = config
        self._observers = Observers(observers)
        self._leave_timeout_ms = leave_timeout_ms
        self._loop = asyncio.get_running_loop()
        self._started_s = self._loop.time()
        # Handled in FIFO order, from `run` on.
        self._events: deque[on.Event] = deque()
        self._is_running = self._is_handling = False
        self._scheduled: asyncio.Handle | None = None
        self._failure: asyncio.Future[None] = self._loop.create_future()
        self._alarm: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._requests = 0
        self._answers: dict[int, asyncio.Future[do.Answer]] = {}
        self._drains: list[asyncio.Future[int]] = []
        self._application = AttachedApplication()
        self._offsets = GroupOffsets(self.post)
        self._manual_assignment = ManualAssignment(self.post, self.now_ms)
        # Held during a change between subscription and manual assignment.
        self._changing = asyncio.Lock()
        self._member_moved = asyncio.Event()
        self._membership: Membership | None = None
        self._ports: EffectPorts | None = None
        self._runner: EffectRunner | None = None
        # Return whether a static member's instance is for another pod when it is drained, and end the member within this time in ms.
        self.may_give_up_instance: Callable[[], bool] = lambda: False
        self.give_up_instance: Callable[[int], None] = lambda within_ms: None
        # Return whether another pod may take the membership of a dynamic member over, and end the member for it within this time in ms.
        self.may_give_up_membership: Callable[[], bool] = lambda: False
        self.give_up_membership: Callable[[int], None] = lambda within_ms: None
        self._participation = Participation(self._spawn, lambda: self.post(on.LeftGroup()), leave_timeout_ms)

    def connect(self, ports: EffectPorts) -> None:
        """Set the ports of the effects. The reader of records posts its events with `post_now`."""
        self._ports = ports
        self._runner = EffectRunner(ports, self.post, self.fail)

    def attach_member(self, membership: Membership, *, is_wanted: bool, is_held: bool) -> bool:
        """Use this member from now on; return True if the caller has to start it."""
        self._membership = membership
        self._offsets.attach_member(membership)
        return self._participation.attach_member(membership, is_wanted=is_wanted, is_held=is_held)

    async def run(self) -> None:
        """Handle events until cancelled; raises unexpected exceptions."""
        self._is_running = True
        self._handle_events()
        try:
            await self._failure
        finally:
            self._is_running = False
            if self._timer is not None:
                self._timer.cancel()
            if self._runner is not None:
                await self._runner.close()

    @override
    def now_ms(self) -> int:
        return int((self._loop.time() - self._started_s) * 1000)

    def post(self, event: on.Event) -> None:
        """Enqueue an event; the loop handles events in FIFO order on its next turn."""
        self._enqueue(event)
        if self._scheduled is None and not self._is_handling:
            self._scheduled = self._loop.call_soon(self._handle_events)

    def post_now(self, event: on.Event) -> None:
        """Enqueue an event and handle the queue in this turn of the loop: records come one by one, and turns cost time."""
        self._enqueue(event)
        self._handle_events()

    def _enqueue(self, event: on.Event) -> None:
        if len(self._events) < EVENTS_MAX:
            self._events.append(event)
        else:
            self.fail(
                RuntimeError(f"{EVENTS_MAX} events wait for the delivery core: the event loop is blocked")
            )

    def fail(self, error: BaseException) -> None:
        """End `run` with an unexpected exception."""
        if not self._failure.done():
            self._failure.set_exception(error)

    @property
    def delivery(self) -> Delivery:
        """Return the core for reading; only events change it."""
        return self._delivery

    @property
    def participation(self) -> Participation:
        """Return the member's participation in the group."""
        return self._participation

    @property
    def is_attached(self) -> bool:
        """Return True if an application is attached."""
        return self._application.is_there

    @property
    def picked(self) -> frozenset[Partition]:
        """Return the manually assigned partitions."""
        return self._manual_assignment.partitions

    async def put_back(self, within_ms: int) -> None:
        """Revoke the manually assigned partitions."""
        async with self._changing:
            await self._manual_assignment.pick(frozenset(), self._offsets.own_tenure, within_ms)

    async def drain(self, within_ms: int, *, leaves_group: bool = False, serves_ms: int | None = None) -> int:
        """
        Dispatch nothing more; return the number of records in flight when it is zero, or at the deadline.

        With `leaves_group` a dynamic member leaves the group once the application has said goodbye too, until `undrain`; a static
        member gives its instance up then, if it may, and a dynamic one its membership if a successor waits. With `serves_ms` it serves the application until `hand_over`, for that long at most.
        """
        drained: asyncio.Future[int] = self._loop.create_future()
        self._drains.append(drained)
        leaves_group = leaves_group and (not self._member.member.is_static or self.may_give_up_instance())
        now_ms = self.now_ms()
        self.post(
            on.Drain(now_ms + within_ms, leaves_group, None if serves_ms is None else now_ms + serves_ms)
        )
        return await drained

    def hand_over(self, *, has_successor: bool) -> None:
        """Drain now if a drain waits for a successor; with one, leave the group without the application's goodbye."""
        self.post(on.HandOver(has_successor))

    def undrain(self) -> None:
        """Dispatch again."""
        self.post(on.Undrain())

    def configure(self, config: DeliveryConfig) -> None:
        """Replace the settings."""
        self._config = config
        self.post(on.Configure(config))

    def end_attachment(self, reason: str) -> None:
        """End the attachment, because the sidecar stops."""
        self._application.close(reason)

    def on_member_event(self, event: MemberEvent) -> None:
        """Observe an event of the member, and post the delivery event that follows from it."""
        for observer in self._observers.all:
            observer.on_member_event(event, self.now_ms())
        match event:
            case StateChanged():
                self._participation.on_member_state(event.state)
                self._member_moved.set()
            case member_do.Committed() | member_do.Fetched():
                self._offsets.on_member_event(event)
            case _:
                self._post_change(event)

    def _post_change(self, event: MemberEvent) -> None:
        match event:
            case member_do.Assign():
                self.post(on.Assigned(self._offsets.tenure(event.tenure), event.partitions))
            case member_do.Revoke():
                left_ms = event.deadline_ms - self._member.now_ms()
                self.post(on.Revoke(event.revocation, event.partitions, self.now_ms() + left_ms))
            case member_do.Revoked():
                self.post(on.Revoked(event.partitions))
            case member_do.Lost():
                self.post(on.Lost(event.partitions, event.reason))
            case member_do.CoordinatorRegained():
                self.post(on.CoordinatorRegained())
            case _:
                # Events for the observers only.
                pass

    def on_coordinator_event(self, event: CoordinatorEvent) -> None:
        """Pass on a notice of the coordinator's connection to the member."""
        self._member.on_coordinator_event(event)

    def _handle_events(self) -> None:
        """Handle all queued events, and those that they cause."""
        if self._is_handling or not self._is_running:
            return
        self._is_handling = True
        try:
            while self._events and self._is_running:
                self._step(self._events.popleft())
        except Exception as error:  # noqa: BLE001  the caller that posted the event did not cause the error
            self.fail(error)
            self._is_running = False
        finally:
            self._is_handling = False
            if self._scheduled is not None:
                self._scheduled.cancel()
                self._scheduled = None

    def _step(self, event: on.Event) -> None:
        now_ms = self.now_ms()
        for observer in self._observers.of_event(type(event)):
            observer.on_event(event, now_ms)
        self._application.on_event(event)
        actions = self._delivery.step(event, now_ms)
        for observer in self._observers.of_actions(actions, self._delivery.in_flight):
            observer.on_actions(actions, self._delivery.in_flight, now_ms)
        for kind, together in groupby(actions, type):
            self._perform(kind, list(together))
        self._set_timer()

    def _perform(self, kind: type[do.Action], actions: Sequence[do.Action]) -> None:
        """Perform actions of one kind, in order."""
        if kind is do.Deliver:
            self._application.deliver(cast("Sequence[do.Deliver]", actions))
        elif kind is do.Refuse:
            self._application.refuse(cast("Sequence[do.Refuse]", actions))
        elif kind is do.WriteDeadLetter:
            self._effects.write(cast("Sequence[do.WriteDeadLetter]", actions))
        else:
            for action in actions:
                self._perform_one(action)

    def _perform_one(self, action: do.Action) -> None:
        match action:
            case do.Fetch():
                request = FetchRequest(
                    action.delivery_epoch, action.partition, action.offset, action.bytes_max
                )
                self.records.fetch(request)
            case do.StopFetching():
                self.records.stop(action.delivery_epoch)
            case do.ListOffsets():
                self._effects.list_offsets(action)
            case do.FetchCommitted() | do.Commit():
                self._ask_coordinator(action)
            case do.AssignmentEvent() | do.PartitionError() | do.OffsetsCommitted():
                self._notify_application(action)
            case do.ReleasePartitions() | do.Leave() | do.Rejoin():
                self._direct_member(action)
            case _:
                self._answer(action)

    def _notify_application(
        self, action: do.AssignmentEvent | do.PartitionError | do.OffsetsCommitted
    ) -> None:
        match action:
            case do.AssignmentEvent():
                self._application.on_assignment_event(action)
            case do.PartitionError():
                self._application.report(action)
            case do.OffsetsCommitted():
                self._application.on_commit(action)

    def _ask_coordinator(self, action: do.FetchCommitted | do.Commit) -> None:
        whom = self._effects if action.is_manual else self._offsets
        if isinstance(action, do.FetchCommitted):
            whom.find(action)
        else:
            whom.commit(action)

    def _direct_member(self, action: do.ReleasePartitions | do.Leave | do.Rejoin) -> None:
        match action:
            case do.ReleasePartitions():
                if not self._manual_assignment.is_released(action.revocation):
                    self._member.post(member_on.PartitionsReleased(action.revocation))
            case do.Leave(is_drained=True) if self._member.member.is_static:
                self._participation.suspend_membership(action.reason, self.give_up_instance)
            case do.Leave(has_successor=True) if self.may_give_up_membership():
                self._participation.suspend_membership(action.reason, self.give_up_membership)
            case do.Leave():
                self._participation.suspend_membership(action.reason)
            case do.Rejoin():
                self._participation.resume_membership()

    def _answer(self, action: do.Action) -> None:
        match action:
            case do.Answer():
                waiting = self._answers.pop(action.request, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(action)
            case do.Drained():
                drains, self._drains = self._drains, []
                for drain in drains:
                    if not drain.done():
                        drain.set_result(action.left)
            case _:
                # AwaitSuccessor, StopDispatch, Settled, Problem: for the observers only.
                pass

    def _set_timer(self) -> None:
        alarm = self._delivery.alarm
        if alarm == self._alarm and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._alarm, self._timer = alarm, None
        if alarm is not None:
            self._timer = self._loop.call_at(self._started_s + alarm / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.post(on.Tick())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._effects.begin(work)

    @property
    def _effects(self) -> EffectRunner:
        assert self._runner is not None
        return self._runner

    @property
    def _member(self) -> Membership:
        assert self._membership is not None
        return self._membership

    @property
    @override
    def config(self) -> DeliveryConfig:
        return self._config

    @property
    @override
    def records(self) -> Records:
        return self._outside.records

    @property
    @override
    def held(self) -> Mapping[Partition, Tenure]:
        return self._delivery.held

    @property
    @override
    def paused(self) -> frozenset[Partition]:
        return self._delivery.paused

    @property
    @override
    def positions(self) -> Mapping[Partition, int]:
        return self._delivery.positions

    @override
    def attach(
        self,
        application: Application,
        *,
        commits_itself: bool,
        reads_itself: bool,
        takes_many: bool,
        takes_commits: bool = False,
    ) -> int:
        session = self._application.attach(application)
        self.post(on.Attached(session, commits_itself, reads_itself, takes_many, takes_commits))
        self._participation.application_attached()
        return session

    @override
    def detach(self, session: int, *, clean: bool) -> None:
        if self._application.detach(session):
            self.post(on.Detached(session, clean))

    @override
    def on_application_event(self, event: on.Acknowledged | on.Credit | on.Judged | on.Reported) -> None:
        self.post(event)

    @override
    async def ask(self, asked: on.ApplicationRequest | on.ResetOffsets) -> do.Answer:
        if len(self._answers) >= REQUESTS_MAX:
            message = f"{REQUESTS_MAX} requests are pending: retry when some of them are answered"
            return do.Answer(0, pb.COORDINATOR_LOAD_IN_PROGRESS, message=message)
        self._requests += 1
        number = self._requests
        answer: asyncio.Future[do.Answer] = self._loop.create_future()
        self._answers[number] = answer
        self.post(replace(asked, request=number))
        try:
            return await answer
        finally:
            self._answers.pop(number, None)

    @override
    async def subscribe(self, topics: Sequence[str], pattern: str) -> None:
        await self.put_back(self._leave_timeout_ms)
        async with self._changing:
            if topics or pattern:
                self._participation.subscribe(Subscription(tuple(topics), pattern))
            else:
                await self._participation.unsubscribe("the application unsubscribed")

    @override
    async def assign(self, partitions: frozenset[Partition]) -> None:
        async with self._changing:
            await self._participation.unsubscribe("the application assigned partitions manually")
            await self._manual_assignment.pick(partitions, self._offsets.own_tenure, self._leave_timeout_ms)

    @override
    async def committed(
        self, partitions: Sequence[Partition], within_s: float
    ) -> Mapping[Partition, on.Stored]:
        error: pb.ErrorCode.ValueType = pb.NOT_COORDINATOR
        try:
            async with asyncio.timeout(within_s):
                while True:
                    error, offsets = await self._fetch_offsets(sorted(set(partitions)), within_s)
                    if error == pb.NONE:
                        return offsets
                    if error not in OFFSETS_LATER:
                        break
                    self._member_moved.clear()
                    await wait_until_set(self._member_moved, OFFSETS_RETRY_S)
        except TimeoutError:
            pass
        said = pb.ErrorCode.Name(error)
        raise Unreachable(
            f"committed offsets of group {self._config.group_id} cannot be fetched ({said}): "
            "check whether its coordinator is running"
        )

    @override
    async def partitions_of(self, topic: str, within_s: float) -> int | None:
        found = await self._outside.topics.describe([topic], within_s)
        return found[topic].partitions if topic in found else None

    @override
    async def topics(self, within_s: float) -> Collection[str]:
        return (await self._outside.topics.describe(None, within_s)).keys()

    async def _fetch_offsets(self, partitions: Sequence[Partition], within_s: float) -> Fetched:
        participation = self._participation
        if participation.is_wanted and not (participation.is_suspended or participation.is_down):
            return await self._offsets.fetch(partitions)
        return await self._outside.standalone_offsets.fetch(partitions, within_s)

    @property
    def _outside(self) -> EffectPorts:
        assert self._ports is not None
        return self._ports
