"""
The runtime of a replicated state: a state machine whose records are a log of the store.

The shells `slot` and `topic_log` derive from it. In: decisions of the state machine, with their records. Out: writes in the order of
the decisions and, once a write is durable, the deliveries that waited for it: responses, notices, rows that consumers may read. After a
failed write it is unknown which records are durable, so the state in memory is discarded and loaded again.
"""

import asyncio
import enum
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from rota_coordinator.store.appends import settle
from rota_coordinator.store.port import SlotLost, Store, StoreError, StoreTakenOver
from rota_proto.coordinator.v1.records_pb2 import Record

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Followed = TypeVar("Followed")


class SlotState(enum.Enum):
    """The state of a slot, or of the embedded log, in this process."""

    DOWN = "Down"
    CATCH_UP = "CatchUp"
    READY = "Ready"


class StateMachine(Protocol):
    """The port of a core. Its decisions return records that it has replayed already; nothing else changes its durable state."""

    def replay(self, record: Record) -> None:
        """Apply a record from the store; called in write order."""
        ...

    def snapshot(self) -> Sequence[Record]:
        """Return the records that restore the present state."""
        ...


Machine = TypeVar("Machine", bound=StateMachine)


class Replica(NamedTuple):
    """The log of one replicated state, and the callbacks of its runtime."""

    store: Store
    # The number of the log in the store, and its name in reports.
    number: int
    name: str
    report: Callable[[str], None]
    report_exception: Callable[[Exception], None]  # an unexpected exception in the core
    # On loading, a log is compacted when it exceeds its snapshot twofold and by more than this many records.
    compact_above: int
    # The same while the state is served; higher, because requests wait for the snapshot.
    compact_running_above: int
    # Called with the duration of every write, in seconds.
    written: Callable[[float], None] = lambda seconds: None
    # Called before a request or a timer is handled; returns False while a failpoint halts the process.
    may_act: Callable[[], bool] = lambda: True
    # Returns True while the lease of this process is valid.
    may_serve: Callable[[], bool] = lambda: True


class Follow(Protocol[Followed]):
    """The type of `ReplicatedState._follow`."""

    def __call__(
        self, work: "asyncio.Future[Followed]", then: Callable[[Followed], None], failure: str
    ) -> None:
        """Call `then` with the result of other work of the store."""
        ...


class Dropped(Exception):
    """A decision broke off, so the state is being loaded again; all that waited for it has been answered."""


class Write(NamedTuple):
    """A write that has not ended, and what waits for it, in the order of decisions."""

    done: "asyncio.Future[None]"
    # Time at which the write was begun, in seconds of the event loop's clock.
    since_s: float
    deliveries: list[Callable[[], None]]
    # Completed with the outcome of the write, after its deliveries.
    waiters: "list[asyncio.Future[None]]"


class ReplicatedState(Generic[Machine]):
    """
    A state machine, its log, and what waits for the log.

    Invariants:
    * The records of a decision are in the write that the decision begins, and writes are in the order of decisions.
    * A delivery runs after the records of its decision, and of all earlier ones, are durable; deliveries keep their order.
    * After a write with unknown outcome, and after a decision that broke off, nothing is delivered before the log was loaded again.
    * Nothing is delivered without a valid lease, and what was begun before a stop has no effect after it.
    """

    def __init__(self, replica: Replica, new_machine: Callable[[], Machine]) -> None:
        self.replica = replica
        self.state = SlotState.DOWN
        self.epoch = 0
        self.machine = new_machine()
        self._new_machine = new_machine
        # Number of records in the log as known to this process, and the number above which it is compacted.
        self._length = 0
        self._length_max = replica.compact_running_above
        # The latest write, until its deliveries have run.
        self._last: Write | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # Keys whose timers are set at the end of this turn, in the order of their first decision.
        self._unscheduled: dict[str, None] = {}
        self._restart: asyncio.Task[None] | None = None
        # Incremented by every stop; completions that belong to an earlier count are ignored.
        self._stop_count = 0

    @property
    def unfinished_append(self) -> "asyncio.Future[None] | None":
        """Return the latest write while it waits for the store; a request that is not answered at once may wait for it."""
        return None if self._last is None or self._last.done.done() else self._last.done

    async def start(self) -> None:
        """Claim the log, load it, then serve the state. A concurrent `stop` cancels the start."""
        stop_count = self._stop_count
        self.state = SlotState.CATCH_UP
        try:
            epoch, handover = await self.replica.store.claim(self.replica.number)
            machine = self._new_machine()
            length = await self._shorten(machine, await self._load(machine), epoch)
        except Exception:
            if stop_count == self._stop_count:
                self.state = SlotState.DOWN
            raise
        if stop_count != self._stop_count:
            return
        self.epoch, self.machine, self.state = epoch, machine, SlotState.READY
        self._measure(length)
        self._serve(handover)

    async def _load(self, machine: Machine) -> int:
        """Replay the log, and return its number of records."""
        records = await self.replica.store.load(self.replica.number)
        for record in records:
            machine.replay(record)
        return len(records)

    async def _shorten(self, machine: Machine, length: int, epoch: int) -> int:
        """Compact a loaded log if most of its records are obsolete; return its number of records."""
        if length > self.replica.compact_above:
            snapshot = machine.snapshot()
            if length > self.replica.compact_above + 2 * len(snapshot):
                await self.replica.store.compact(self.replica.number, epoch, snapshot)
                return len(snapshot)
        return length

    def _serve(self, handover: bytes) -> None:
        """Begin to serve the loaded state; `handover` is the snapshot of the previous owner."""

    def stop(self) -> None:
        """Stop serving the state."""
        self.state = SlotState.DOWN
        self._stop_count += 1
        self._last = None
        if self._restart is not None:
            self._restart.cancel()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._unscheduled = {}

    async def _drain(self) -> bool:
        """Accept no more decisions, and deliver all earlier ones; return False if the state was not served until then."""
        if self.state is not SlotState.READY:
            return False
        stop_count = self._stop_count
        self.state = SlotState.DOWN
        if self._last is not None:
            await asyncio.wait({self._last.done})
        return stop_count == self._stop_count

    def check_lease(self) -> bool:
        """Stop once the lease of this process has expired: another process may own the log. Return whether it is valid."""
        if self.replica.may_serve() or (self.state is SlotState.DOWN and self._last is None):
            return True
        self.stop()
        return False

    def _may_act(self) -> bool:
        """Return whether requests and timers are handled; deadlines and lease are up to date then."""
        if not self.replica.may_act():
            return False
        self.check_lease()
        return True

    def _decide(
        self, decide: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Run a decision of the core. After an exception the state may be inconsistent, so it is dropped; raises Dropped."""
        try:
            return decide(*args, **kwargs)
        except Exception as broken:
            self.replica.report_exception(broken)
            self._drop(f"a decision failed ({type(broken).__name__})")
            raise Dropped(f"{self.replica.name} must be reloaded after an internal error") from broken

    def _write(self, done: "asyncio.Future[None]", records: int) -> None:
        """Follow a write of so many records to the log; later deliveries wait for it."""
        self._length += records
        self._last = Write(done, asyncio.get_running_loop().time(), [], [])
        done.add_done_callback(partial(self._written, self._stop_count, self._last))

    async def _ended(self, write: Write) -> None:
        """Wait until the write has ended; raise its error. A caller that is cancelled does not cancel the write."""
        if write.done.done():
            write.done.result()
        else:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            write.waiters.append(waiter)
            await waiter

    def _deliver(self, delivery: Callable[[], None]) -> None:
        """Run the delivery once all writes so far are durable; at once if they are."""
        if self._last is None:
            self._deliver_now(delivery)
        else:
            self._last.deliveries.append(delivery)

    def _deliver_now(self, delivery: Callable[[], None]) -> None:
        if not self.check_lease():
            return
        try:
            delivery()
        except Exception as broken:  # noqa: BLE001  all that waits would wait for ever
            self.replica.report_exception(broken)
            self._drop(f"a delivery failed ({type(broken).__name__})")

    def _written(self, stop_count: int, write: Write, done: "asyncio.Future[None]") -> None:
        if done.cancelled():  # with the event loop
            for waiter in write.waiters:
                waiter.cancel()
            return
        error = done.exception()
        self.replica.written(done.get_loop().time() - write.since_s)
        if stop_count == self._stop_count:
            if error is None:
                self._stored(stop_count, write)
            else:
                self._failed(error)
        for waiter in write.waiters:
            settle(waiter, None, error)

    def _stored(self, stop_count: int, write: Write) -> None:
        # Compact after the write, not before: a snapshot must not contain records of an atomic write that may fail.
        if self._length > self._length_max and self.state is SlotState.READY:
            self._compact()
        # A delivery may add others; it may also stop the state, as the end of the lease does.
        for delivery in write.deliveries:
            if stop_count == self._stop_count:
                self._deliver_now(delivery)
        if self._last is write:
            self._last = None

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, SlotLost):
            # Another process owns the log; claiming it again would take it from that process.
            self.stop()
            self.replica.report(f"{self.replica.name}: {error}; no longer serving it")
        else:
            self._drop(str(error))

    def _drop(self, why: str) -> None:
        """Discard the state in memory, and load it again."""
        self.stop()
        self.replica.report(f"{self.replica.name}: {why}; reloading it")
        self.state = SlotState.CATCH_UP
        self._restart = asyncio.ensure_future(self._reload())

    async def _reload(self) -> None:
        """Load the state at once; if that fails too, the caller of `start` reports it and retries."""
        with suppress(StoreError):
            await self.start()

    def _measure(self, length: int) -> None:
        """Set the log's length in records, and the length above which it is compacted next."""
        self._length = length
        self._length_max = self.replica.compact_running_above + 4 * length

    def _compact(self) -> None:
        """Replace the log by a snapshot; after a failure, the next attempt waits until the log exceeds its new limit."""
        snapshot = self.machine.snapshot()
        self._measure(len(snapshot))
        compaction = self.replica.store.compact(self.replica.number, self.epoch, snapshot)
        self._follow(compaction, lambda _: None, "its log was not compacted")

    def _follow(
        self, work: "asyncio.Future[Result]", then: Callable[[Result], None], failure: str = ""
    ) -> None:
        """Call `then` with the result of other work of the store; `failure`: report of its error, if not empty."""
        work.add_done_callback(partial(self._followed, self._stop_count, then, failure))

    def _followed(
        self,
        stop_count: int,
        then: Callable[[Result], None],
        failure: str,
        work: "asyncio.Future[Result]",
    ) -> None:
        error = None if work.cancelled() else work.exception()
        if stop_count != self._stop_count or work.cancelled():
            return
        if error is None:
            then(work.result())
        elif isinstance(error, StoreTakenOver):
            self._failed(error)
        elif failure and not isinstance(error, SlotLost):  # the next write reports it
            self.replica.report(f"{self.replica.name}: {error}; {failure}")

    def _schedule(self, key: str) -> None:
        """
        Set the timer of this key at the end of the present turn of the event loop: finding the deadline of a large group takes
        as long as a request, and a turn may have hundreds of them.
        """
        if not self._unscheduled:
            asyncio.get_running_loop().call_soon(self._schedule_all, self._stop_count)
        self._unscheduled[key] = None

    def _schedule_all(self, stop_count: int) -> None:
        if stop_count == self._stop_count:
            keys, self._unscheduled = self._unscheduled, {}
            for key in keys:
                self._set_timer(key, self._delay_ms(key))

    def _delay_ms(self, key: str) -> int | None:
        """Return the time until the timer of this key is due, in milliseconds; None: no timer."""

    def _set_timer(self, key: str, delay_ms: int | None) -> None:
        """Set the timer of this key, in place of an earlier one; None: no timer."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if delay_ms is not None:
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_later(max(delay_ms, 0) / 1000, self._due, key)

    def _due(self, key: str) -> None:
        if self._may_act() and self.state is SlotState.READY:
            self._wake(key)

    def _wake(self, key: str) -> None:
        """Handle the timer of this key."""
