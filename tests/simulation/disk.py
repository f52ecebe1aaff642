"""
A store with latency and faults. What it says is durable survives a crash; what it has not said yet may, or may not.

Faults that the port names: an error before the write, and one after it, when nobody knows what is there.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rota_coordinator.store.port import Claim, SlotLost, StoreError
from rota_proto.coordinator.v1.records_pb2 import Record


@dataclass(slots=True)
class Disk:
    """What survives."""

    chance: random.Random
    latency_s: float
    error_rate: float
    fired: "Counter[str]"
    records: dict[int, list[Record]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    on_compaction: Callable[[], None] = lambda: None


class DiskStore:
    """One process's access to the disk; a new one after each crash."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._dead = False
        self._broken: set[int] = set()
        self._waiting: list[tuple[int, int, Sequence[Record], asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def claim(self, slot: int) -> Claim:
        self._disk.epochs[slot] = self._disk.epochs.get(slot, 0) + 1
        self._broken.discard(slot)
        return Claim(self._disk.epochs[slot], parcel=b"")

    async def load(self, slot: int) -> Sequence[Record]:
        await asyncio.sleep(self._disk.latency_s)
        return list(self._disk.records.get(slot, []))

    def append(self, slot: int, epoch: int, records: Sequence[Record]) -> "asyncio.Future[None]":
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((slot, epoch, records, done))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.ensure_future(self._write())
        return done

    async def compact(self, slot: int, epoch: int, snapshot: Sequence[Record]) -> None:
        await asyncio.sleep(self._disk.latency_s)
        if not self._may_write(slot, epoch):
            raise SlotLost("an old epoch")
        self._disk.fired["compaction"] += 1
        self._disk.records[slot] = list(snapshot)
        self._disk.on_compaction()

    async def close(self) -> None:
        self.crash()

    def crash(self) -> None:
        """The process dies. Of what was being written some may have reached the disk, in order."""
        if self._writer is not None:
            self._writer.cancel()
        for slot, epoch, records, _ in self._waiting:
            if self._disk.chance.random() < 0.5 or not self._may_write(slot, epoch):
                break
            self._disk.fired["crash between write and answer"] += 1
            self._disk.records.setdefault(slot, []).extend(records)
        self._waiting.clear()
        self._dead = True

    def _may_write(self, slot: int, epoch: int) -> bool:
        return not self._dead and slot not in self._broken and self._disk.epochs[slot] == epoch

    async def _write(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._disk.chance.uniform(0, 2 * self._disk.latency_s))
            slot, epoch, records, done = self._waiting.pop(0)
            if not self._may_write(slot, epoch):
                done.set_exception(SlotLost("an old epoch"))
                continue
            fails = self._disk.chance.random() < self._disk.error_rate
            if not fails or self._disk.chance.random() < 0.5:
                self._disk.records.setdefault(slot, []).extend(records)
            if fails:
                self._disk.fired["store error"] += 1
                self._broken.add(slot)
                done.set_exception(StoreError("the disk failed; whether it wrote, nobody knows"))
            else:
                done.set_result(None)
