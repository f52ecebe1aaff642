"""
A store with latency and faults. A durable write survives a crash; a pending one may or may not.

A pending write reaches the disk by itself, also when the process that sent it is paused or dead by then. The faults
are those of the port: an error before the write, and an error after it with an unknown outcome.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from typing_extensions import override

from rota_coordinator.core.slots.table import SLOTS
from rota_coordinator.store import batches
from rota_coordinator.store.port import Claim, SlotLost, Store, StoreError
from rota_proto.coordinator.v1.records_pb2 import Record
from tests.simulation.loop import Process, VirtualLoop
from tests.simulation.plan import Plan

SLOW_S = 1.5
# What waits longer for the disk gives up.
LONG_S = 10.0
Outcome = StoreError | None
Result = TypeVar("Result")


class Reader(Protocol):
    """Listener for records, called as soon as they are on the disk."""

    def wrote(self, slot: int, epoch: int, records: Sequence[Record]) -> None:
        """Handle records that are durable now."""
        ...

    def compacted(self, slot: int) -> None:
        """The slot's log is another one, which should say the same."""
        ...


class Append(NamedTuple):
    """A pending write, which replaces all earlier records or follows them, and the future of its caller."""

    slot: int
    epoch: int
    records: Sequence[Record]
    done: "asyncio.Future[None]"
    replaces: bool = False


@dataclass(slots=True)
class Disk:
    """The state that survives a crash."""

    loop: VirtualLoop
    plan: Plan
    chance: random.Random
    fired: "Counter[str]"
    reader: Reader
    # Only these are slow, and fail: nobody knows the groups of the others.
    slots: frozenset[int]
    logs: dict[int, list[Record]] = field(default_factory=dict)
    epochs: "Counter[int]" = field(default_factory=Counter)
    calm: bool = False
    # Processes that cannot reach the disk.
    cut: set[Process] = field(default_factory=set)

    def latency_s(self) -> float:
        """Draw the latency of one operation in seconds."""
        if self._happens(self.plan.slow_rate, "slow write"):
            return self.chance.uniform(0, 2 * SLOW_S)
        return self.chance.uniform(0, 2 * self.plan.latency_s)

    def fails(self) -> tuple[bool, bool]:
        """Draw whether an operation is carried out, and whether it is reported as failed."""
        if self.calm or self.chance.random() >= self.plan.error_rate:
            return True, False
        done = self.chance.random() < 0.5
        self.fired["store error after the write" if done else "store error before the write"] += 1
        return done, True

    def reaches(self, process: Process) -> bool:
        """Draw whether a message between a process and the disk arrives."""
        if process not in self.cut:
            return True
        self.fired["store cut off"] += 1
        return False

    def _happens(self, rate: float, fault: str) -> bool:
        if not rate or self.calm or self.chance.random() >= rate:
            return False
        self.fired[fault] += 1
        return True

    def write(self, append: Append) -> None:
        """
        Append records to a log, or replace the log, as bytes, so that later changes of the objects have no effect.
        """
        slot = append.slot
        data, checksum = batches.encode(append.records)
        read = batches.decode(data, checksum, "the log")
        if append.replaces:
            self.logs[slot] = list(read)
            self.fired["compaction"] += 1
            self.reader.compacted(slot)
        else:
            self.logs.setdefault(slot, []).extend(read)
            self.reader.wrote(slot, append.epoch, read)


class DiskStore(Store):
    """One process's access to the disk; a new one after each crash."""

    slots = SLOTS
    # How long a write may take before it is given up.
    patience_s = LONG_S

    def __init__(self, disk: Disk, process: Process) -> None:
        self.disk = disk
        self.process = process
        # Called with what a decision wants to have written.
        self.on_append: Callable[[Sequence[Record]], None] = lambda records: None
        self._broken: set[int] = set()
        self._waiting: list[Append] = []
        self._under_way: list[Append] = []

    @property
    def writing(self) -> bool:
        """Something that was appended is not known to be durable yet."""
        return bool(self._waiting or self._under_way)

    def is_settled(self, slot: int, epoch: int) -> bool:
        """All that this process decided for the slot is durable."""
        return not self.writing and slot not in self._broken and self.disk.epochs[slot] == epoch

    @override
    async def claim(self, slot: int) -> Claim:
        claim = await self.ask(lambda: self.claimed(slot), slot)
        self._broken.discard(slot)
        return claim

    @override
    async def load(self, slot: int) -> Sequence[Record]:
        return await self.ask(lambda: list(self.disk.logs.get(slot, [])), slot)

    @override
    def append(self, slot: int, epoch: int, records: Sequence[Record]) -> "asyncio.Future[None]":
        self.on_append(records)
        return self._put(Append(slot, epoch, records, self.disk.loop.create_future()))

    @override
    def compact(self, slot: int, epoch: int, snapshot: Sequence[Record]) -> "asyncio.Future[None]":
        return self._put(Append(slot, epoch, snapshot, self.disk.loop.create_future(), replaces=True))

    def _put(self, append: Append) -> "asyncio.Future[None]":
        self._waiting.append(append)
        if not self._under_way:
            self._send()
        return append.done

    @override
    async def close(self) -> None:
        """Nothing is held."""

    async def ask(
        self, work: Callable[[], Result], slot: int | None = None, within_s: float = LONG_S
    ) -> Result:
        """Have something done on the disk, whatever happens to this process meanwhile; the result comes back."""
        if slot is not None and slot not in self.disk.slots:
            return work()
        loop = self.disk.loop
        answer: asyncio.Future[Result] = loop.create_future()
        timer = loop.call_later(within_s, self._settle, answer, None, StoreError("no answer came"))
        if self.disk.reaches(self.process):
            loop.outside(self.disk.latency_s(), self._carry_out, work, answer)
        try:
            return await answer
        finally:
            timer.cancel()

    def _carry_out(self, work: Callable[[], Result], answer: "asyncio.Future[Result]") -> None:
        carried_out, failed = self.disk.fails()
        result, error = None, StoreError("the disk failed") if failed else None
        if carried_out:
            try:
                result = work()
            except StoreError as refusal:
                error = error or refusal
        if self.disk.reaches(self.process):
            self.disk.loop.call_soon(self._settle, answer, result, error, context=self.process.context)

    def _settle(
        self, answer: "asyncio.Future[Result]", result: Result | None, error: StoreError | None
    ) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(result)  # type: ignore[arg-type]
        else:
            answer.set_exception(error)

    def claimed(self, slot: int) -> Claim:
        """Write a claim: from now on no other process writes to the slot."""
        self.disk.epochs[slot] += 1
        return Claim(self.disk.epochs[slot], handover=b"")

    def _send(self) -> None:
        """Write all pending appends in one transaction; after a timeout their outcome is unknown."""
        appends = self._under_way = self._waiting
        self._waiting = []
        refused = frozenset(self._broken)
        latency_s = self.disk.latency_s()
        arrives = self.disk.reaches(self.process)
        if arrives:
            self.disk.loop.outside(latency_s, self._land, appends, refused)
        if not arrives or latency_s > self.patience_s:
            self._lose(appends, self.patience_s)

    def _land(self, appends: list[Append], refused: frozenset[int]) -> None:
        """The transaction reaches the disk; its process may be gone by now, and then it may have been stopped too."""
        if not self.process.alive and self.disk.chance.random() < 0.5:
            return
        carried_out, failed = self.disk.fails()
        unknown = StoreError("whether it was written, nobody knows") if failed else None
        given_up = self._under_way is not appends
        outcomes: list[Outcome] = []
        for append in appends:
            if append.slot in refused or self.disk.epochs[append.slot] != append.epoch:
                outcomes.append(SlotLost("an old epoch"))
                continue
            # A snapshot that comes late leaves alone what was appended behind it; here it does nothing at all then.
            if carried_out and not (append.replaces and given_up):
                self.disk.write(append)
                self.disk.fired["a write of a dead process lands"] += not self.process.alive
            outcomes.append(unknown)
        if any(isinstance(outcome, SlotLost) for outcome in outcomes):
            self.disk.fired["a write comes too late for its epoch"] += 1
        if self.disk.reaches(self.process):
            self.disk.loop.call_soon(self._landed, appends, outcomes, context=self.process.context)
        else:
            self._lose(appends, self.patience_s)

    def _lose(self, appends: list[Append], after_s: float) -> None:
        """No answer comes; after a while the process takes it that none will."""
        outcomes: list[Outcome] = [StoreError("no answer came") for _ in appends]
        loop = self.disk.loop
        loop.call_at(loop.now_s + after_s, self._landed, appends, outcomes, context=self.process.context)

    def _landed(self, appends: list[Append], outcomes: list[Outcome]) -> None:
        """The process hears of it, or gives up."""
        if self._under_way is not appends:
            return
        for append, outcome in zip(appends, outcomes, strict=True):
            if outcome is not None and not isinstance(outcome, SlotLost) and not append.replaces:
                self._broken.add(append.slot)
            if append.done.cancelled():
                continue
            if outcome is None:
                append.done.set_result(None)
            else:
                append.done.set_exception(outcome)
        self._under_way = []
        if self._waiting:
            self._send()
