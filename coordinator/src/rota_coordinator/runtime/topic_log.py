"""
The embedded log in this process: performs the decisions of the log core.

Called by `rpc.log_service` with requests and by timers of the event loop. Each decision is one store transaction,
offsets of groups included; its response is sent once the transaction is written, and flushed if the response promises
durability. After a failed write the stored state is unknown, so requests are rejected until the log is reloaded.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from rota_coordinator.core.instants import WallClock, WallMs
from rota_coordinator.core.log.charges import LogCharges
from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.core.log.effects import Effects
from rota_coordinator.core.log.log import Log
from rota_coordinator.core.log.partition import Partition
from rota_coordinator.core.log.retention import new_start
from rota_coordinator.core.quotas import Quotas
from rota_coordinator.runtime.overload import Refusal
from rota_coordinator.runtime.ownership import DedupedReporter
from rota_coordinator.runtime.recent_rows import RecentRows
from rota_coordinator.runtime.slot import Slot, SlotState
from rota_coordinator.store.port import LOG_SLOT, LogStore, StoreError, StoreTakenOver
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import ProducerEnded, Record
from rota_proto.log.v1 import log_pb2

Reply = TypeVar("Reply")
# The event log is compacted when more than this many events, and most of all events, are obsolete.
COMPACT_ABOVE = 10_000
# Batches of a partition that one retention step reads.
RETAINED_AT_ONCE = 1_000
# Delay of a retry, in seconds, when a group cannot take part in the end of a transaction yet.
AGAIN_S = 0.1


class Groups(Protocol):
    """Port to the slots, whose groups take part in transactions."""

    def slot(self, group_id: str) -> Slot:
        """Return the slot of a group."""
        ...

    @property
    def slots(self) -> Sequence[Slot]:
        """All slots."""
        ...


@dataclass(frozen=True, slots=True)
class LogEnvironment:
    """The dependencies of the log: store, clocks, callbacks and quotas."""

    store: LogStore
    config: LogConfig
    now_ms: Callable[[], WallMs]
    new_uuid: Callable[[], bytes]  # a topic id that no topic has had
    report: Callable[[str], None]
    report_exception: Callable[[Exception], None]  # an unexpected exception in the core
    # Difference of the clocks at the last call of `now_ms`.
    wall: WallClock = field(default_factory=WallClock)
    quotas: Quotas = field(default_factory=Quotas)


@dataclass(slots=True)
class TopicLog:
    """
    The shell around the log core.

    Invariant: writes are in the order of decisions, and consumers see stored rows only.
    """

    environment: LogEnvironment
    groups: Groups
    state: SlotState = SlotState.DOWN
    epoch: int = 0
    core: Log = field(init=False)
    # Log id -> events of the waiting fetches, set when more of the log may be read.
    # Cache that `fetches` reads; it contains stored rows only.
    recent: RecentRows = field(default_factory=RecentRows)
    _waiters: dict[int, set[asyncio.Event]] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None
    # The latest write; responses that show decided state wait for it.
    _last_write: "asyncio.Future[None] | None" = None
    _length: int = 0
    _length_max: int = COMPACT_ABOVE
    _stop_count: int = 0
    _reporter: DedupedReporter = field(init=False)
    _charges: LogCharges = field(init=False)

    def __post_init__(self) -> None:
        self.core = Log(self.environment.config, self.environment.wall)
        self._reporter = DedupedReporter(self.environment.report)
        self._charges = LogCharges(self.environment.quotas)

    async def start(self) -> None:
        """Claim the log, load it, then serve it. A concurrent `stop` cancels the start."""
        stop_count = self._stop_count
        self.state = SlotState.CATCH_UP
        store = self.environment.store
        core = Log(self.environment.config, self.environment.wall)
        try:
            epoch, _ = await store.claim(LOG_SLOT)
            records = await store.load(LOG_SLOT)
            for record in records:
                core.replay(record.log_event)
            ends: dict[int, int] = {}
            async for headers in store.headers():
                for log_id, header in headers:
                    core.replay_batch(log_id, header)
                    ends.setdefault(log_id, header.next_offset)
            sizes = await store.sizes()
        except StoreError:
            if stop_count == self._stop_count:
                self.state = SlotState.DOWN
            raise
        if stop_count != self._stop_count:
            return
        core.loaded(self.environment.now_ms())
        self.epoch, self.core, self.state = epoch, core, SlotState.READY
        self._charges.load(core.topics(), sizes)
        self._measure(len(records))
        self._schedule()
        self._sweep(ends)

    def _sweep(self, ends: Mapping[int, int]) -> None:
        """Delete rows whose deletion a crash interrupted; `ends` maps a log id to the end offset of its first row."""
        starts = {partition.log_id: partition.start for partition in self.core.partitions()}
        for log_id, end in ends.items():
            if log_id not in starts or end <= starts[log_id]:
                self._drop_rows(log_id, starts.get(log_id))

    async def run_once(self) -> None:
        """Start the log if it is not served; called in a loop by the router."""
        if self.state is SlotState.DOWN:
            try:
                await self.start()
                self._reporter.recovered("the log")
            except StoreTakenOver:
                raise  # ends the process, as when a slot is lost
            except StoreError as error:
                self._reporter.failed("the log", error)

    def missing(self) -> str:
        """Return the reason why the log is not served yet; empty when it is."""
        return "" if self.state is SlotState.READY else "the log is not served yet"

    async def finish(self) -> None:
        """Stop serving after all decisions are durable."""
        tail = self._last_write
        if tail is not None:
            await asyncio.wait({tail})
        self.stop()

    def stop(self) -> None:
        """Stop serving; waiting fetches are woken."""
        self.state = SlotState.DOWN
        self._stop_count += 1
        self._last_write = None
        self._charges.clear()
        self.recent.clear()
        if self._timer is not None:
            self._timer.cancel()
        for events in self._waiters.values():
            for event in events:
                event.set()

    def check_ready(self) -> None:
        """Raise Refusal while the log is not served."""
        if self.state is not SlotState.READY:
            raise Refusal("UNAVAILABLE", "the log is loading; retry later")

    async def decide(self, decide: Callable[[Log, Effects], Reply], *, flush: bool = True) -> Reply:
        """Run a decision of the core, and return its result once it is written."""
        reply, written = self.start_decision(decide, flush=flush)
        if written is not None:
            await self.wait(written)
        return reply

    def start_decision(
        self, decide: Callable[[Log, Effects], Reply], *, flush: bool = True
    ) -> "tuple[Reply, asyncio.Future[None] | None]":
        """Run a decision of the core; return its result and the write to wait for."""
        self.check_ready()
        effects = Effects()
        try:
            reply = decide(self.core, effects)
        except Exception as broken:
            self.environment.report_exception(broken)
            self._drop(f"a decision failed ({type(broken).__name__})")
            raise Refusal(
                "UNAVAILABLE", "the log must be reloaded after an internal error; retry later"
            ) from broken
        try:
            self._perform(effects, flush=flush)
        except StoreError as broken:
            self._drop(str(broken))
            raise Refusal("UNAVAILABLE", f"nothing was written: {broken}") from broken
        return reply, self._last_write

    async def wait(self, written: "asyncio.Future[None]") -> None:
        """Wait until the write is stored; raise Refusal when its outcome is unknown."""
        try:
            await asyncio.shield(written)
        except StoreError as error:
            raise Refusal("UNAVAILABLE", f"the outcome of the write is unknown: {error}") from error

    def may_end(self, groups: Iterable[str]) -> bool:
        """Return whether these groups can take part in the end of a transaction now."""
        return all(self.groups.slot(group_id).state is SlotState.READY for group_id in groups)

    def commit_refusal(self, transactional_id: str) -> pb.ErrorCode.ValueType:
        """Return the error of the first of the transaction's groups that prevents its commit; NONE if none does."""
        for member in self.core.memberships(transactional_id):
            asked = pb.TxnCommitOffsetsRequest(
                group_id=member.group_id,
                generation_id=member.generation_id,
                member_id=member.member_id,
            )
            if member.HasField("group_instance_id"):
                asked.group_instance_id = member.group_instance_id
            error = self.groups.slot(member.group_id).groups.membership_error(asked)
            if error:
                return error
        return pb.NONE

    def add_waiter(self, log_ids: Iterable[int], event: asyncio.Event) -> None:
        """Register an event that is set when one of these logs has more to read, or is deleted."""
        for log_id in log_ids:
            self._waiters.setdefault(log_id, set()).add(event)

    def remove_waiter(self, log_ids: Iterable[int], event: asyncio.Event) -> None:
        """Unregister the event from these logs."""
        for log_id in log_ids:
            waiting = self._waiters.get(log_id, set())
            waiting.discard(event)
            if not waiting:
                self._waiters.pop(log_id, None)

    def _perform(self, effects: Effects, *, flush: bool) -> None:
        records = [Record(log_event=event) for event in effects.events]
        if records or effects.rows or effects.endings:
            self._last_write = self._put(records, effects, flush=flush)
            self._last_write.add_done_callback(partial(self._written, self._stop_count, effects))
        self._charge(effects)
        for log_id in effects.dropped:
            self._drop_rows(log_id, None)
        if records:
            self._schedule()
            self._length += len(records)
        if self._length > self._length_max:
            self._compact()

    def _charge(self, effects: Effects) -> None:
        """Charge the creators of topics for the effects of a decision."""
        for event in effects.events:
            if event.HasField("topic_created"):
                topic = self.core.topic(event.topic_created.name)
                assert topic is not None, "a request creates a topic or deletes it"
                self._charges.topic_created(topic, {})
            elif event.HasField("topic_deleted"):
                self._charges.topic_deleted(event.topic_deleted.name)
        self._charges.logs_dropped(effects.dropped)
        self._charges.appended(effects.rows)

    def _put(self, records: Sequence[Record], effects: Effects, *, flush: bool) -> "asyncio.Future[None]":
        """Write group records and log effects atomically; the future completes once they are stored."""
        store = self.environment.store
        if not records and not effects.endings:
            return store.append_rows(self.epoch, effects.rows, flush=flush)
        with store.atomic():
            for event in effects.events:
                if event.HasField("topic_deleted"):
                    self._forget_offsets(event.topic_deleted.name)
            for ending in effects.endings:
                ended = ProducerEnded(producer_id=ending.producer_id, committed=ending.committed)
                self.groups.slot(ending.group_id).end_transaction(ending.group_id, ended)
            if not self.may_end(ending.group_id for ending in effects.endings):
                raise StoreError("a group could not take part in ending its transaction")
            if effects.rows:
                # The end of a transaction is flushed, and with it all records of the transaction.
                store.append_rows(self.epoch, effects.rows, flush=True)
            return store.append(LOG_SLOT, self.epoch, records)

    def _written(self, stop_count: int, effects: Effects, write: "asyncio.Future[None]") -> None:
        error = None if write.cancelled() else write.exception()
        if stop_count != self._stop_count:
            return
        if error is not None:
            self._drop(str(error))
            return
        self.core.written(effects.rows)
        self.recent.remember(effects.rows)
        # Wake fetches of deleted topics, too: they answer with an error.
        for log_id in {*effects.dropped, *(row.log_id for row in effects.rows)}:
            for event in self._waiters.get(log_id, ()):
                event.set()

    def _forget_offsets(self, topic: str) -> None:
        """Delete the committed offsets of a topic that is deleted in the same write."""
        for slot in self.groups.slots:
            slot.forget_topic(topic)

    def _drop(self, why: str) -> None:
        """Stop serving and discard the state in memory; the next run reloads it."""
        self.stop()
        self.environment.report(f"the log: {why}; reloading it")

    def _drop_rows(self, log_id: int, before_offset: int | None) -> None:
        dropped = self.environment.store.drop_rows(log_id, before_offset)
        dropped.add_done_callback(self._dropped)
        dropped.add_done_callback(partial(self._freed, self._stop_count, log_id))

    def _freed(self, stop_count: int, log_id: int, work: "asyncio.Future[int]") -> None:
        """Discharge deleted rows; a deletion from before a reload stays charged until the next load."""
        if stop_count == self._stop_count and not work.cancelled() and work.exception() is None:
            self._charges.dropped(log_id, work.result())

    def _dropped(self, work: "asyncio.Future[int] | asyncio.Future[None]") -> None:
        error = None if work.cancelled() else work.exception()
        if self.state is not SlotState.READY:
            return  # the next start deletes the remaining rows
        if isinstance(error, StoreTakenOver):
            self._drop(str(error))
        elif error is not None:
            self.environment.report(f"the log: {error}; rows to delete stay until the next retention check")

    def _measure(self, length: int) -> None:
        self._length = length
        self._length_max = COMPACT_ABOVE + 4 * length

    def _compact(self) -> None:
        snapshot = [Record(log_event=event) for event in self.core.snapshot()]
        self._measure(len(snapshot))
        self.environment.store.compact(LOG_SLOT, self.epoch, snapshot).add_done_callback(self._dropped)

    def _schedule(self) -> None:
        """Set a timer for the next transaction timeout."""
        if self._timer is not None:
            self._timer.cancel()
        now_ms = self.environment.now_ms()
        at_ms = self.core.wake_at_ms()
        if at_ms is not None:
            delay_s = max((at_ms - now_ms) / 1000, 0)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake)

    def _wake(self) -> None:
        if self.state is not SlotState.READY:
            return
        if not all(slot.state is SlotState.READY for slot in self.groups.slots):
            self._timer = asyncio.get_running_loop().call_later(AGAIN_S, self._wake)
            return
        # A failure has been reported, and reloading the log sets the timer again.
        with suppress(Refusal):
            self.start_decision(lambda core, effects: core.expire(self.environment.now_ms(), effects))
        if self.state is SlotState.READY:
            # No transaction may have been due, because the wall clock was set back meanwhile.
            self._schedule()

    async def retain(self) -> None:
        """Delete records of all partitions beyond their retention time or size; called periodically."""
        for partition in list(self.core.partitions()):
            while self.state is SlotState.READY and await self._retain(partition):
                pass

    async def _retain(self, partition: Partition) -> bool:
        """Apply retention to a batch of rows; return whether more may have to be deleted."""
        if partition.retention_ms < 0 and partition.retention_bytes < 0:
            return False
        store, log_id = self.environment.store, partition.log_id
        oldest, size = await store.oldest(log_id, RETAINED_AT_ONCE), await store.size(log_id)
        start = new_start(partition, oldest, size, self.environment.now_ms())
        if start <= partition.start:
            return False
        asked = log_pb2.DeleteRecordsRequest.Partition(
            topic=partition.topic, index=partition.index, before_offset=start
        )
        await self.delete_records(log_pb2.DeleteRecordsRequest(partitions=[asked]))
        return True

    async def delete_records(self, request: log_pb2.DeleteRecordsRequest) -> log_pb2.DeleteRecordsResponse:
        """Handle DeleteRecords: move the log start offsets, then delete the rows before them in the background."""
        reply = await self.decide(lambda core, effects: core.delete_records(request, effects))
        for asked, answered in zip(request.partitions, reply.partitions, strict=True):
            found = self.core.partition(asked.topic, asked.index)
            if not answered.error_code and isinstance(found, Partition):
                self._drop_rows(found.log_id, found.start)
        return reply
