"""
The driver of a member: it owns the clock, the timer, random numbers and all tasks, and performs the core's actions.

Events come in through `post` (deliveries, lifecycle) and `on_coordinator_event` (the connection). One loop feeds them to the
core in FIFO order, and passes each MemberEvent to the handler on the event loop, in the order of the core's actions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member.actions import Action
from rota_sidecar.core.member.identity import SavedMembership
from rota_sidecar.core.member.liveness import Alarm
from rota_sidecar.core.member.member import Member
from rota_sidecar.core.member.states import Down
from rota_sidecar.engines.port import (
    Coordination,
    CoordinatorEvent,
    Disconnected,
    Refused,
    Topics,
    Unreachable,
)
from rota_sidecar.membership.leader import Leader
from rota_sidecar.membership.state_file import StateFile, StateFileError

TOPICS_TIMEOUT_S = 30
# Delay before the first retry after a failed description of topics, or one that lacks a topic; doubles up to the refresh interval.
TOPICS_RETRY_S = 0.2
# Share of the refresh interval by which it is randomized, so that members that start together spread out.
TOPICS_JITTER = 0.2
STATE_FLUSH_TIMEOUT_S = 5
# Interval between attempts to write the state file after a failure, for example on a full disk.
STATE_RETRY_S = 2
STATE_FILE_RECOVERED = "the state file in --state-folder is written again"
PROTOCOL_TIMEOUT_S = 10
REMOVAL_TIMEOUT_S = 5
CLASSIC = "classic"
# Limit of queued events, far above the number of calls under way.
EVENTS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The member changed to the state of this name."""

    state: str


@dataclass(frozen=True, slots=True)
class ForeignProtocol:
    """The group runs another protocol now, which members of the classic protocol cannot share permanently."""

    type: str


@dataclass(frozen=True, slots=True)
class StateFileRecovered:
    """The state file could not be written for a while, and was written again."""


MemberEvent = (
    do.Joined
    | do.Assign
    | do.Revoke
    | do.Revoked
    | do.Lost
    | do.GiveUpMembership
    | do.CoordinatorRegained
    | do.Committed
    | do.Fetched
    | do.Problem
    | do.Ended
    | StateChanged
    | ForeignProtocol
    | StateFileRecovered
)
MemberEventHandler = Callable[[MemberEvent], None]


@dataclass(frozen=True, slots=True)
class MembershipPorts:
    """Dependencies of a membership: backend, leader, random numbers and state file."""

    coordination: Coordination
    topics: Topics
    leader: Leader
    # Returns random numbers in [0, 1).
    chance: Callable[[], float]
    topics_refresh_s: float
    # None: the membership is not saved.
    state_file: StateFile | None = None
    # Returns the type of the group (`classic`, `consumer`) on backends that have several; the argument is a timeout in s.
    protocol_of_group: Callable[[float], Awaitable[str]] | None = None


class Membership:
    """
    Member of a group, from its start until it has ended; create and use it on a running loop.

    Invariant: events are handled one at a time, in the order of `post`.
    """

    def __init__(self, member: Member, ports: MembershipPorts, on_event: MemberEventHandler) -> None:
        self._member = member
        self._ports = ports
        self._on_event = on_event
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._began_s = loop.time()
        self._events: asyncio.Queue[on.Event] = asyncio.Queue(EVENTS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._search: asyncio.Task[None] | None = None
        self._alarm: Alarm | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._state = ""
        self._refresh_now = asyncio.Event()
        self._watched = member.watched
        self._state_writer = StateFileWriter(ports.state_file, on_event)
        self._ended: asyncio.Future[do.Ended] = loop.create_future()
        # Set in the state Down without a LeaveGroup under way. A Start before that would abandon the LeaveGroup.
        self.at_rest = asyncio.Event()

    @property
    def member(self) -> Member:
        """The member core, read-only; `post` changes it."""
        return self._member

    def now_ms(self) -> int:
        """Time in ms since this object was created, by the monotonic clock."""
        return int((self._loop.time() - self._began_s) * 1000)

    async def run(self, saved: SavedMembership | None, *, starts_now: bool = True) -> do.Ended:
        """
        Run the member until it has ended. It starts at once, or with a Start event if `starts_now` is False.

        Raises the unexpected exception of any of its tasks.
        """
        self._spawn(self._run_events())
        self._spawn(self._state_writer.run())
        self._spawn(self._refresh_topics())
        if starts_now:
            self.post(on.Start(saved))
        try:
            ended = await asyncio.shield(self._ended)
            await self._state_writer.flush()
            return ended
        finally:
            await self._close()

    def post(self, event: on.Event) -> None:
        """Enqueue an event; the loop handles events in FIFO order on its next turn."""
        try:
            self._events.put_nowait(event)
        except asyncio.QueueFull:
            self._fail(RuntimeError(f"{EVENTS_MAX} events wait for the member: the event loop is blocked"))

    async def remove_instances(self, names: Sequence[str]) -> str:
        """
        Remove other static members, which have ended without leaving the group; return what the coordinator says against it, or "".

        Raises Unreachable, Refused.
        """
        members = [pb.LeavingMember(group_instance_id=name, reason="its pod has ended") for name in names]
        return await self._remove(members)

    async def remove_member(self, member_id: str, reason: str) -> str:
        """
        Remove a dynamic member that no process uses any more; return what the coordinator says against it, or "".

        Raises Unreachable, Refused.
        """
        return await self._remove([pb.LeavingMember(member_id=member_id, reason=reason)])

    async def _remove(self, members: Sequence[pb.LeavingMember]) -> str:
        request = pb.LeaveGroupRequest(group_id=self._member.group_id, members=members)
        response = await self._ports.coordination.ask(request, REMOVAL_TIMEOUT_S)
        assert isinstance(response, pb.LeaveGroupResponse)
        errors = [response.error_code, *(each.error_code for each in response.members)]
        wrong = next((each for each in errors if each not in (pb.NONE, pb.UNKNOWN_MEMBER_ID)), pb.NONE)
        return "" if wrong == pb.NONE else f"the coordinator answers {pb.ErrorCode.Name(wrong)}"

    def on_coordinator_event(self, event: CoordinatorEvent) -> None:
        """Enqueue a notice or a disconnection of the coordinator's connection."""
        match event:
            case pb.RebalanceNotice():
                self.post(on.RebalanceNoticed(event.member_id, event.generation_id))
            case pb.GoAway():
                self.post(on.CoordinatorLost(f"the coordinator hands group {event.group_id} over"))
            case Disconnected():
                self.post(on.CoordinatorLost(event.reason))

    async def _run_events(self) -> None:
        while True:
            event = await self._events.get()
            if not self._ended.done():
                self._step(event)

    def _step(self, event: on.Event) -> None:
        for action in self._member.step(event, self.now_ms()):
            self._perform(action)
        state = type(self._member.state).__name__
        if state != self._state:
            self._state = state
            self._on_event(StateChanged(state))
        if isinstance(self._member.state, Down) and self._member.state.leave_call is None:
            self.at_rest.set()
        else:
            self.at_rest.clear()
        self._set_timer()
        if self._member.watched != self._watched:
            self._watched = self._member.watched
            self._refresh_now.set()

    def _perform(self, action: Action) -> None:
        match action:
            case do.FindCoordinator() | do.SendRequest() | do.ComputeAssignment():
                self._call(action)
            case do.SaveMembership():
                self._state_writer.set_target(action.saved)
            case do.DeleteMembership():
                self._state_writer.set_target(None)
            case _:
                self._on_event(action)
                self._react(action)

    def _call(self, action: do.FindCoordinator | do.SendRequest | do.ComputeAssignment) -> None:
        match action:
            case do.FindCoordinator():
                self._search = self._spawn(self._find(action, self._search))
            case do.SendRequest():
                self._spawn(self._send(action))
            case do.ComputeAssignment():
                self._spawn(self._lead(action))

    def _react(self, event: MemberEvent) -> None:
        """Handle the actions that concern the driver too."""
        match event:
            case do.Joined(leader="") if self._ports.protocol_of_group is not None:
                self._spawn(self._check_protocol(self._ports.protocol_of_group))
            case do.Ended() if not self._ended.done():
                self._ended.set_result(event)
            case _:
                pass

    async def _find(self, action: do.FindCoordinator, before: "asyncio.Task[None] | None") -> None:
        if before is not None and not before.done():
            # The earlier search is obsolete, and must not close the connection that this one opens.
            before.cancel()
            await asyncio.wait([before])
        try:
            error = await self._ports.coordination.find(action.within_ms / 1000)
        except (Unreachable, Refused) as failure:
            self._post_failure(action.call, failure)
        else:
            self.post(on.CoordinatorFound(action.call, error))

    async def _send(self, action: do.SendRequest) -> None:
        try:
            response = await self._ports.coordination.ask(action.request, action.within_ms / 1000)
        except (Unreachable, Refused) as failure:
            self._post_failure(action.call, failure)
        else:
            self.post(on.ResponseReceived(action.call, response))

    async def _lead(self, action: do.ComputeAssignment) -> None:
        within_s = action.within_ms / 1000
        try:
            async with asyncio.timeout(within_s):
                led = await self._ports.leader.lead(action)
        except TimeoutError:
            late = f"the strategy {action.strategy} computed no assignment within {within_s:g} s: correct it or choose another"
            self._post_failure(action.call, Unreachable(late))
        except (Unreachable, Refused) as failure:
            self._post_failure(action.call, failure)
        else:
            self.post(led)

    async def _check_protocol(self, ask: Callable[[float], Awaitable[str]]) -> None:
        """Report a foreign protocol. A join without a leader means that the broker assigned, or that a membership was resumed."""
        try:
            protocol = await ask(PROTOCOL_TIMEOUT_S)
        except (Unreachable, Refused) as failure:
            self._report_problem(f"the type of the group cannot be read: {failure}")
            return
        if protocol not in ("", CLASSIC):
            self._on_event(ForeignProtocol(protocol))

    def _post_failure(self, call: int, failure: Unreachable | Refused) -> None:
        self.post(on.CallFailed(call, str(failure), refused=isinstance(failure, Refused)))

    async def _refresh_topics(self) -> None:
        """
        Describe the watched topics periodically, and whenever the set of watched topics changes.

        Topics that do not exist are looked up sooner: applications often create theirs while the member joins.
        """
        last_problem, retry_s = "", TOPICS_RETRY_S
        watched = self._member.watched
        while True:
            self._refresh_now.clear()
            if watched != self._member.watched:
                watched, retry_s = self._member.watched, TOPICS_RETRY_S
            is_complete = False
            try:
                found = await self._ports.topics.describe(watched, TOPICS_TIMEOUT_S)
            except (Unreachable, Refused) as failure:
                if str(failure) != last_problem:
                    last_problem = str(failure)
                    self._report_problem(f"topics cannot be described: {last_problem}")
            else:
                last_problem, is_complete = "", watched is None or watched <= found.keys()
                if watched == self._member.watched:
                    self.post(on.TopicsDescribed({name: topic.partitions for name, topic in found.items()}))
            pause_s = self._ports.topics_refresh_s
            pause_s, retry_s = (
                (pause_s, TOPICS_RETRY_S) if is_complete else (min(retry_s, pause_s), retry_s * 2)
            )
            pause_s *= 1 - TOPICS_JITTER / 2 + TOPICS_JITTER * self._ports.chance()
            await wait_until_set(self._refresh_now, pause_s)

    def _set_timer(self) -> None:
        alarm = self._member.alarm
        if alarm == self._alarm and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._alarm, self._timer = alarm, None
        if alarm is not None:
            at_ms = ceil(alarm.at_ms + alarm.spread_ms * self._ports.chance())
            self._timer = self._loop.call_at(self._began_s + at_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.post(on.Tick())

    def _report_problem(self, message: str) -> None:
        self._on_event(do.Problem(message))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a task; an unexpected exception in it ends the membership."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    async def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._ports.coordination.close()
        await self._ports.topics.close()


async def wait_until_set(event: asyncio.Event, within_s: float | None) -> None:
    """Wait until the event is set, for at most `within_s` seconds; None: without limit."""
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return


class StateFileWriter:
    """Writes the state file in a thread, so that a slow disk delays no heartbeat. Invariant: the last target is written last."""

    def __init__(self, file: StateFile | None, on_event: MemberEventHandler) -> None:
        self._file = file
        self._on_event = on_event
        self._last_problem = ""
        self._wanted: SavedMembership | None = None
        self._changed = asyncio.Event()
        self._attempted = asyncio.Event()
        self._attempted.set()

    def set_target(self, saved: SavedMembership | None) -> None:
        """Set the membership to save; None: delete the file."""
        self._wanted = saved
        self._changed.set()
        self._attempted.clear()

    async def run(self) -> None:
        """Write each target, and retry after failures; never returns."""
        again_s = None
        while True:
            await wait_until_set(self._changed, again_s)
            self._changed.clear()
            if self._file is not None:
                again_s = None if await self._saved(self._file, self._wanted) else STATE_RETRY_S
            if not self._changed.is_set():
                self._attempted.set()

    async def _saved(self, file: StateFile, wanted: SavedMembership | None) -> bool:
        try:
            await asyncio.to_thread(save_or_remove, file, wanted)
        except StateFileError as error:
            if str(error) != self._last_problem:
                self._last_problem = str(error)
                self._on_event(do.Problem(self._last_problem))
            return False
        # Deleting a file succeeds on a full disk too, so it does not show that there is space again.
        if self._last_problem and wanted is not None:
            self._last_problem = ""
            self._on_event(StateFileRecovered())
        return True

    async def flush(self) -> None:
        """Wait until the last target was written or failed, for at most STATE_FLUSH_TIMEOUT_S."""
        await wait_until_set(self._attempted, STATE_FLUSH_TIMEOUT_S)


def save_or_remove(file: StateFile, wanted: SavedMembership | None) -> None:
    """Write the membership, or delete the file if there is none. Raises StateFileError."""
    if wanted is None:
        file.remove()
    else:
        file.write(wanted)
