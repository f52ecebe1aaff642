"""
A slot in this process: performs the decisions of the group core.

Called by `router` with requests and by timers of the event loop. A response is sent when every record written before it
is durable. After a failed write it is unknown which records are durable, so the slot is dropped and loaded again.
"""

import asyncio
import contextlib
import enum
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from google.protobuf.message import Message

from rota_coordinator.core.group.answers import Request, group_of, refused
from rota_coordinator.core.group.config import GroupConfig
from rota_coordinator.core.group.effects import Call, Effects
from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.group.growth import usage
from rota_coordinator.core.group.join import Joining
from rota_coordinator.core.instants import MonotonicMs, WallClock
from rota_coordinator.core.quotas import Quotas
from rota_coordinator.runtime import failpoints
from rota_coordinator.runtime.failpoints import Failpoints
from rota_coordinator.runtime.observer import Observers, error_of
from rota_coordinator.runtime.overload import Stalls
from rota_coordinator.store.port import SlotLost, Store, StoreError
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import HandoverSnapshot, ProducerEnded


class SlotState(enum.Enum):
    """The state of a slot in this process."""

    DOWN = "Down"
    CATCH_UP = "CatchUp"
    READY = "Ready"


# The response to a call; None: a newer call of the same member superseded it, and it gets no response.
Answer = asyncio.Future[Message | None]
# Requests that do not change their group's records; a heartbeat only extends deadlines.
ReadOnlyRequest = pb.HeartbeatRequest | pb.FetchOffsetsRequest | admin.DescribeGroupsRequest
CommitRequest = pb.CommitOffsetsRequest | pb.TxnCommitOffsetsRequest


class Open(NamedTuple):
    """A call without response yet, and the time at which it was submitted."""

    request: Request
    answer: Answer
    since_s: float


@dataclass(frozen=True, slots=True)
class SlotEnvironment:
    """The dependencies of a slot: store, clocks, callbacks and limits."""

    store: Store
    config: GroupConfig
    now_ms: Callable[[], MonotonicMs]
    new_uuid: Callable[[], str]  # returns a new UUID
    notify: Callable[[pb.RebalanceNotice], None]
    group_changed: Callable[[str], None]  # called with a group id after its description may have changed
    report: Callable[[str], None]
    report_exception: Callable[[Exception], None]  # an unexpected exception in the core
    # Returns True while the lease of this process is valid; always True on SQLite, which locks the file.
    may_serve: Callable[[], bool] = lambda: True
    failpoints: Failpoints = field(default_factory=Failpoints)
    observers: Observers = field(default_factory=Observers)
    stalls: Stalls = field(default_factory=Stalls)
    quotas: Quotas = field(default_factory=Quotas)
    # Called with group id and member id after a member was removed.
    member_removed: Callable[[str, str], None] = lambda group_id, member_id: None
    # Called with a slot's number after this process has begun or ended to serve it.
    slot_changed: Callable[[int], None] = lambda number: None
    # On loading, a log is compacted when it exceeds its snapshot twofold and by more than this many records.
    compact_above: int = 1_000
    # The same while the slot is served; higher, because requests wait for the snapshot.
    compact_running_above: int = 10_000
    # Difference of the clocks at the last call of `now_ms`.
    wall: WallClock = field(default_factory=WallClock)


@dataclass(slots=True)
class Slot:
    """
    The shell around the groups of one slot.

    Invariant: responses are sent in the order of decisions, each after all records of earlier decisions are durable.
    """

    number: int
    environment: SlotEnvironment
    state: SlotState = SlotState.DOWN
    epoch: int = 0
    groups: Groups = field(init=False)
    _open: dict[Call, Open] = field(default_factory=dict)
    _calls: "itertools.count[int]" = field(default_factory=itertools.count)
    _timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    # Number of records in the log as known to this process, and the number above which it is compacted.
    _length: int = 0
    _length_max: int = 0
    # The latest append; responses wait for it.
    _last_append: "asyncio.Future[None] | None" = None
    _restart: "asyncio.Task[None] | None" = None
    # Incremented by every stop; completions that belong to an earlier count are ignored.
    _stop_count: int = 0

    def __post_init__(self) -> None:
        self.groups = Groups(self.environment.config, wall=self.environment.wall)

    async def start(self) -> None:
        """Claim the slot, load its log, then serve it. A concurrent `stop` cancels the start."""
        stop_count = self._stop_count
        self.state = SlotState.CATCH_UP
        try:
            epoch, handover = await self.environment.store.claim(self.number)
            groups = await self._read(epoch)
        except StoreError:
            if stop_count == self._stop_count:
                self.state = SlotState.DOWN
            raise
        if stop_count != self._stop_count:
            return
        self._discharge_all()
        self.epoch, self.groups, self.state = epoch, groups, SlotState.READY
        for group_id in groups.groups:
            self._charge(group_id)
        handed_over = HandoverSnapshot.FromString(handover)
        for group_id, effects in self.groups.loaded(self.environment.now_ms(), handed_over).items():
            self._perform(group_id, effects)
        self.environment.slot_changed(self.number)

    async def _read(self, epoch: int) -> Groups:
        """Load the groups from the log, and compact it if most of its records are obsolete."""
        groups = Groups(self.environment.config, wall=self.environment.wall)
        records = await self.environment.store.load(self.number)
        for record in records:
            groups.replay(record)
        self._measure(len(records))
        if len(records) > self.environment.compact_above:
            snapshot = groups.snapshot()
            if len(records) > self.environment.compact_above + 2 * len(snapshot):
                self._measure(len(snapshot))
                await self.environment.store.compact(self.number, epoch, snapshot)
        return groups

    def _measure(self, length: int) -> None:
        """Set the log's length in records, and the length above which it is compacted next."""
        self._length = length
        self._length_max = self.environment.compact_running_above + 4 * length

    def _compact(self) -> None:
        """
        Replace the log by a snapshot; after a failure, the next attempt waits until the log exceeds its new limit.
        """
        snapshot = self.groups.snapshot()
        self._measure(len(snapshot))
        compaction = self.environment.store.compact(self.number, self.epoch, snapshot)
        compaction.add_done_callback(self._compacted)

    def _compacted(self, compaction: "asyncio.Future[None]") -> None:
        error = None if compaction.cancelled() else compaction.exception()
        if error is not None and not isinstance(error, SlotLost):  # the next append reports it
            self.environment.report(f"slot {self.number}: {error}; its log was not compacted")

    async def finish(self) -> HandoverSnapshot | None:
        """
        Stop serving after all decided requests are answered, and return the snapshot for the next owner.

        None when that failed or when the slot was stopped meanwhile; there is nothing to hand over then.
        """
        if self.state is not SlotState.READY:
            return None
        self.environment.stalls.settle()
        stop_count = self._stop_count
        self.state = SlotState.DOWN
        if self._last_append is not None:
            await asyncio.wait({self._last_append})
        if stop_count != self._stop_count:
            return None
        handover = self.groups.handover(self.environment.now_ms())
        self.stop(pb.NOT_COORDINATOR)
        return handover

    def stop(self, error: pb.ErrorCode.ValueType) -> None:
        """Stop serving; waiting calls are answered with the error."""
        self.state = SlotState.DOWN
        self._discharge_all()
        self._stop_count += 1
        self._last_append = None
        if self._restart is not None:
            self._restart.cancel()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        waiting, self._open = self._open, {}
        for open_call in waiting.values():
            self._settle(open_call, refused(open_call.request, error))
        self.environment.slot_changed(self.number)

    def _charge(self, group_id: str) -> None:
        """Charge the group's creator for its present usage."""
        group = self.groups.groups.get(group_id)
        if group is None:
            self.environment.quotas.discharge(("group", group_id))
        else:
            self.environment.quotas.charge(("group", group_id), group.created_by, usage(group))

    def _discharge_all(self) -> None:
        """Remove the quota charges of all groups of the slot."""
        for group_id in self.groups.groups:
            self.environment.quotas.discharge(("group", group_id))

    def compensate_stall(self, stall_ms: int) -> None:
        """Extend the deadlines of all groups by a stall of the process that ended now."""
        if self.state is SlotState.READY:
            self.groups.compensate_stall(stall_ms, self.environment.now_ms())

    def expire_offsets(self) -> None:
        """Expire offsets of all groups; called every few minutes."""
        if self.state is SlotState.READY:
            for group_id in list(self.groups.groups):
                expire = partial(self.groups.expire_offsets, group_id, self.environment.now_ms())
                self._perform(group_id, self._run_decision(expire))

    def end_transaction(self, group_id: str, ended: ProducerEnded) -> None:
        """End a producer's transaction in a group; called within the log's atomic write of the transaction's end."""
        self._perform(group_id, self._run_decision(lambda: self.groups.end_transaction(group_id, ended)))

    def forget_topic(self, topic: str) -> None:
        """Delete the offsets of a deleted topic; called within the log's atomic write of the deletion."""
        for group_id in list(self.groups.offsets):
            self._perform(group_id, self._run_decision(partial(self.groups.forget_topic, group_id, topic)))

    def submit(self, request: Request, client_host: str, principal: str = "") -> Answer:
        """Decide a request of the principal; the answer completes once the decision is durable."""
        loop = asyncio.get_running_loop()
        answer: Answer = loop.create_future()
        if self.environment.failpoints.held:
            return answer
        self.environment.stalls.settle()
        self.check_lease()
        if self.state is not SlotState.READY:
            self._settle(Open(request, answer, loop.time()), refused(request, self._unready_error(request)))
            return answer
        call = Call(next(self._calls))
        self._open[call] = Open(request, answer, loop.time())
        effects = self._run_decision(lambda: self._decide(call, request, client_host, principal))
        if is_all_well(request, effects):
            self._deliver(self._stop_count, effects)
        else:
            self._perform(group_of(request), effects, changes=may_change_its_group(request))
        if self.environment.failpoints.armed and self._some_joined(request):
            self._holds(failpoints.SOME_JOINED)
        return answer

    def check_lease(self) -> None:
        """Stop the slot once the lease of this process has expired: another process may own it."""
        if (self.state is not SlotState.DOWN or self._open) and not self.environment.may_serve():
            self.stop(pb.NOT_COORDINATOR)

    def _some_joined(self, request: Request) -> bool:
        """Return whether this join leaves the open round with some, but not all, members joined."""
        group = self.groups.groups.get(group_of(request))
        if not isinstance(request, pb.JoinGroupRequest) or group is None or group.barrier is None:
            return False
        return 0 < sum(member.joining is not None for member in group.members) < len(group.members)

    def _unready_error(self, request: Request) -> pb.ErrorCode.ValueType:
        if self.state is SlotState.DOWN:
            return pb.NOT_COORDINATOR
        # As in Kafka, heartbeats succeed while the group is loading, so that members stay in the group.
        return pb.NONE if isinstance(request, pb.HeartbeatRequest) else pb.COORDINATOR_LOAD_IN_PROGRESS

    def _decide(self, call: Call, request: Request, client_host: str, principal: str) -> Effects:
        now_ms = self.environment.now_ms()
        match request:
            case pb.JoinGroupRequest():
                joining = Joining(call, request, client_host, self.environment.new_uuid(), principal)
                return self.groups.join(joining, now_ms)
            case pb.SyncGroupRequest() | pb.HeartbeatRequest() | pb.LeaveGroupRequest():
                return self.groups.handle(call, request, now_ms)
            case pb.CommitOffsetsRequest() | pb.TxnCommitOffsetsRequest():
                return self.groups.commit(call, request, now_ms, principal)
            case pb.FetchOffsetsRequest():
                return self.groups.fetch(call, request)
            case _:
                return self.groups.administer(call, request, now_ms, principal)

    def _run_decision(self, decide: Callable[[], Effects]) -> Effects:
        """
        Run a decision of the core. After an exception its state may be inconsistent, so the slot is reloaded from the
        log, and waiting calls are answered.
        """
        try:
            return decide()
        except Exception as broken:  # noqa: BLE001  after any exception the state may be inconsistent
            self.environment.report_exception(broken)
            self._drop(f"a decision failed ({type(broken).__name__})")
            return Effects()

    def _perform(self, group_id: str, effects: Effects, *, changes: bool = True) -> None:
        if self.state is not SlotState.READY:
            return  # the decision failed and dropped the slot
        if effects.records:
            self._last_append = self.environment.store.append(self.number, self.epoch, effects.records)
            self._last_append.add_done_callback(
                partial(self._written, self._stop_count, asyncio.get_running_loop().time())
            )
            self._length += len(effects.records)
        if changes:
            self._charge(group_id)
            self._schedule(group_id)
        stop_count = self._stop_count
        if self._last_append is None or is_durable(self._last_append):
            self._deliver(stop_count, effects)
        else:
            self._last_append.add_done_callback(lambda _: self._deliver(stop_count, effects))
        if changes:
            self.environment.group_changed(group_id)

    def _written(self, stop_count: int, since_s: float, append: "asyncio.Future[None]") -> None:
        self._appended(stop_count, append)
        self.environment.observers.appended(append.get_loop().time() - since_s)

    def _appended(self, stop_count: int, append: "asyncio.Future[None]") -> None:
        error = None if append.cancelled() else append.exception()
        if stop_count != self._stop_count:
            return
        if error is None:
            # Compact after the write, not before: a snapshot must not contain records of an atomic write that may fail.
            if self._length > self._length_max and self.state is SlotState.READY:
                self._compact()
        elif isinstance(error, SlotLost):
            # Another process owns the slot; claiming it again would take it from that process.
            self.stop(pb.NOT_COORDINATOR)
            self.environment.report(f"slot {self.number}: {error}; no longer serving it")
        else:
            self._drop(str(error))

    def _drop(self, why: str) -> None:
        """Discard the state in memory, and reload the slot."""
        self.stop(pb.NOT_COORDINATOR)
        self.environment.report(f"slot {self.number}: {why}; reloading it")
        self.state = SlotState.CATCH_UP
        self._restart = asyncio.ensure_future(self._read_anew())

    async def _read_anew(self) -> None:
        """Reload at once; if that fails too, ownership reports it and retries."""
        with contextlib.suppress(StoreError):
            await self.start()

    def _deliver(self, stop_count: int, effects: Effects) -> None:
        """Deliver the answers and notices of a decision, unless the slot was stopped since."""
        self.check_lease()
        if stop_count == self._stop_count and not self._holds_before(effects):
            self._answer(effects.replies)
            if effects.superseded:
                self._answer((call, None) for call in effects.superseded)
            self._notify(effects.notices)
            for group_id, member_id in effects.removed_members:
                self.environment.member_removed(group_id, member_id)
            for change in effects.rounds:
                self.environment.observers.round_changed(change)

    def _answer(self, replies: Iterable[tuple[Call, Message | None]]) -> None:
        for number, (call, reply) in enumerate(replies):
            if number and isinstance(reply, pb.SyncGroupResponse) and self._holds(failpoints.SOME_ANSWERED):
                return
            open_call = self._open.pop(call, None)
            if open_call is not None:
                self._settle(open_call, reply)

    def _settle(self, open_call: Open, reply: Message | None) -> None:
        """Set the answer of a call, unless the call was cancelled."""
        request, answer, since_s = open_call
        if not answer.done():
            answer.set_result(reply)
            self.environment.observers.answered(request, error_of(reply), answer.get_loop().time() - since_s)

    def _notify(self, notices: Sequence[pb.RebalanceNotice]) -> None:
        for number, notice in enumerate(notices):
            if self.environment.failpoints.held or (number and self._holds(failpoints.SOME_NOTIFIED)):
                return
            self.environment.notify(notice)
        if notices:
            self._holds(failpoints.NOTIFIED)

    def _holds(self, failpoint: str) -> bool:
        return self.environment.failpoints.reach(failpoint)

    def _holds_before(self, effects: Effects) -> bool:
        """Return whether a failpoint holds back this answer and all later ones."""
        if effects.records:
            assigns = any(isinstance(reply, pb.SyncGroupResponse) for _, reply in effects.replies)
            if assigns and self._holds(failpoints.ASSIGNMENT_WRITTEN):
                return True
        return self.environment.failpoints.held

    def _schedule(self, group_id: str) -> None:
        """Set a timer for the group's next deadline."""
        timer = self._timers.pop(group_id, None)
        if timer is not None:
            timer.cancel()
        at_ms = self.groups.wake_at_ms(group_id)
        if at_ms is not None:
            delay_s = max(at_ms - self.environment.now_ms(), 0) / 1000
            self._timers[group_id] = asyncio.get_running_loop().call_later(delay_s, self._wake, group_id)

    def _wake(self, group_id: str) -> None:
        self.environment.stalls.settle()
        self.check_lease()
        if self.state is not SlotState.READY or self.environment.failpoints.held:
            return
        pass_time = partial(self.groups.pass_time, group_id, self.environment.now_ms())
        self._perform(group_id, self._run_decision(pass_time))


def is_durable(append: "asyncio.Future[None]") -> bool:
    """Return whether the append is durable; a failed append is done but not durable."""
    return append.done() and not append.cancelled() and append.exception() is None


def may_change_its_group(request: Request) -> bool:
    """Return whether the request may change its group; a commit at most creates one, outside a generation."""
    if isinstance(request, CommitRequest):
        return request.generation_id < 0
    return not isinstance(request, ReadOnlyRequest)


def is_all_well(request: Request, effects: Effects) -> bool:
    """
    Return whether the request is a heartbeat that succeeds without any effect.

    Its response waits for no write, because it confirms a generation that was durable before the member received it.
    A slow disk therefore delays commits, but not heartbeats.
    """
    return isinstance(request, pb.HeartbeatRequest) and not any(
        getattr(reply, "error_code", pb.NONE) for _, reply in effects.replies
    )
