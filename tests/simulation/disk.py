"""
A store with latency and faults. What it says is durable survives a crash; what it has not said yet may, or may not.

What is under way reaches the disk by itself, also when the process that sent it is dead by then. Faults that the port
names: an error before the write, and one after it, when nobody knows what is there.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from rota_coordinator.store import batches
from rota_coordinator.store.port import Claim, SlotLost, StoreError
from rota_proto.coordinator.v1.records_pb2 import Record
from tests.simulation.loop import Process, VirtualLoop
from tests.simulation.plan import Plan

SLOW_S = 1.5
Outcome = StoreError | None


class Reader(Protocol):
    """Who is told what is on the disk, as soon as it is."""

    def wrote(self, slot: int, epoch: int, records: Sequence[Record]) -> None:
        """These records are durable now."""
        ...

    def compacted(self, slot: int) -> None:
        """The slot's log is another one, which should say the same."""
        ...


class Append(NamedTuple):
    """What was asked to be put down, and who waits for it."""

    slot: int
    epoch: int
    records: Sequence[Record]
    done: "asyncio.Future[None]"


@dataclass(slots=True)
class Disk:
    """What survives."""

    loop: VirtualLoop
    plan: Plan
    chance: random.Random
    fired: "Counter[str]"
    reader: Reader
    logs: dict[int, list[Record]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    calm: bool = False
    # Only these are slow, and fail: nothing is known of the others.
    slots: frozenset[int] = frozenset()

    def latency_s(self) -> float:
        """How long something takes this time."""
        if self._happens(self.plan.slow_rate, "slow write"):
            return self.chance.uniform(0, 2 * SLOW_S)
        return self.chance.uniform(0, 2 * self.plan.latency_s)

    def fails(self) -> tuple[bool, bool]:
        """Whether a write is carried out, and whether it is said to have failed."""
        if not self._happens(self.plan.error_rate, "store error"):
            return True, False
        done = self.chance.random() < 0.5
        self.fired["store error after the write" if done else "store error before the write"] += 1
        return done, True

    def _happens(self, rate: float, fault: str) -> bool:
        if not rate or self.calm or self.chance.random() >= rate:
            return False
        self.fired[fault] += 1
        return True

    def write(self, slot: int, epoch: int, records: Sequence[Record]) -> None:
        """Put records at the end of a log, as bytes, so that nobody changes them later."""
        data, checksum = batches.encode(records)
        read = batches.decode(data, checksum, "the log")
        self.logs.setdefault(slot, []).extend(read)
        self.reader.wrote(slot, epoch, read)


class DiskStore:
    """One process's access to the disk; a new one after each crash."""

    def __init__(self, disk: Disk, process: Process) -> None:
        self.disk = disk
        self._process = process
        self._broken: set[int] = set()
        self._waiting: list[Append] = []
        self._under_way: list[Append] = []
        # Called with what a decision wants to have written.
        self.on_append: Callable[[Sequence[Record]], None] = lambda records: None

    @property
    def writing(self) -> bool:
        """Something that was appended is not known to be durable yet."""
        return bool(self._waiting or self._under_way)

    def is_settled(self, slot: int, epoch: int) -> bool:
        """All that this process decided for the slot is durable."""
        return not self.writing and self._may_write(slot, epoch)

    async def claim(self, slot: int) -> Claim:
        if slot in self.disk.slots:
            await self._arrival()
        self.disk.epochs[slot] = self.disk.epochs.get(slot, 0) + 1
        self._broken.discard(slot)
        return Claim(self.disk.epochs[slot], parcel=b"")

    async def load(self, slot: int) -> Sequence[Record]:
        if slot in self.disk.slots:
            await self._arrival()
            if self.disk.fails()[1]:
                raise StoreError("the disk cannot be read")
        return list(self.disk.logs.get(slot, []))

    def append(self, slot: int, epoch: int, records: Sequence[Record]) -> "asyncio.Future[None]":
        self.on_append(records)
        done: asyncio.Future[None] = self.disk.loop.create_future()
        self._waiting.append(Append(slot, epoch, records, done))
        if not self._under_way:
            self._send()
        return done

    async def compact(self, slot: int, epoch: int, snapshot: Sequence[Record]) -> None:
        await self._arrival()
        if not self._may_write(slot, epoch):
            raise SlotLost("an old epoch")
        carried_out, failed = self.disk.fails()
        if carried_out:
            self.disk.fired["compaction"] += 1
            self.disk.logs[slot] = list(snapshot)
            self.disk.reader.compacted(slot)
        if failed:
            raise StoreError("the disk failed while it compacted")

    async def close(self) -> None:
        """Nothing is held."""

    async def _arrival(self) -> None:
        """A question goes to the disk and comes back."""
        await asyncio.sleep(self.disk.latency_s())

    def _send(self) -> None:
        """All that waits goes in one transaction."""
        self._under_way, self._waiting = self._waiting, []
        self.disk.loop.outside(self.disk.latency_s(), self._land, self._under_way)

    def _land(self, appends: list[Append]) -> None:
        """The transaction reaches the disk; its process may be gone by now, and then it may have been stopped too."""
        if not self._process.alive and self.disk.chance.random() < 0.5:
            return
        carried_out, failed = self.disk.fails()
        outcomes: list[Outcome] = []
        for append in appends:
            if not self._may_write(append.slot, append.epoch):
                outcomes.append(SlotLost("an old epoch"))
                continue
            if carried_out:
                self.disk.write(append.slot, append.epoch, append.records)
                if not self._process.alive:
                    self.disk.fired["a write of a dead process lands"] += 1
            if failed:
                self._broken.add(append.slot)
            outcomes.append(StoreError("whether it was written, nobody knows") if failed else None)
        self.disk.loop.call_soon(self._landed, appends, outcomes, context=self._process.context)

    def _landed(self, appends: list[Append], outcomes: list[Outcome]) -> None:
        """The process hears of it."""
        for append, outcome in zip(appends, outcomes, strict=True):
            if append.done.cancelled():
                continue
            if outcome is None:
                append.done.set_result(None)
            else:
                append.done.set_exception(outcome)
        self._under_way = []
        if self._waiting:
            self._send()

    def _may_write(self, slot: int, epoch: int) -> bool:
        return slot not in self._broken and self.disk.epochs[slot] == epoch
