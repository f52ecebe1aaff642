"""The disk as several coordinators share it: who is alive, and who owns what, by the disk's own clock."""

from dataclasses import dataclass, field
from typing import NamedTuple

from typing_extensions import override

from rota_coordinator.core.slots.table import Process as Living
from rota_coordinator.core.slots.table import Row, Table
from rota_coordinator.store.port import Claim, LeaseLost, SharedStore, SlotLost
from tests.simulation.disk import Disk, DiskStore
from tests.simulation.loop import Process
from tests.simulation.plan import LEASE_S, SLOTS_USED


class Lease(NamedTuple):
    """Of a process that is alive."""

    address: str
    until_s: float


class Owned(NamedTuple):
    """A slot's row; its epoch is the log's."""

    owner: str = ""
    new_owner: str = ""
    handover: bytes = b""


@dataclass(slots=True)
class Leases:
    """The tables of processes and slots."""

    disk: Disk
    leases: dict[str, Lease] = field(default_factory=dict)
    rows: dict[int, Owned] = field(default_factory=lambda: {slot: Owned() for slot in range(SLOTS_USED)})
    registered: int = 0

    def is_alive(self, process_id: str) -> bool:
        """Return whether the lease is valid."""
        lease = self.leases.get(process_id)
        return lease is not None and lease.until_s > self.disk.loop.now_s

    def owner(self, slot: int) -> str:
        """Return the owner of a slot whose lease is valid; empty: there is none."""
        owner = self.rows[slot].owner
        return owner if self.is_alive(owner) else ""

    def are_equal(self) -> bool:
        """Return whether the numbers of slots of all live processes differ by one at most."""
        table = self.table()
        counts = [len(table.owned_by(process.process_id)) for process in table.processes]
        return sum(counts) == len(table.rows) and max(counts) - min(counts) <= 1

    def table(self) -> Table:
        """Return the table that a renewal reads."""
        return Table(
            tuple(
                Living(process_id, lease.address)
                for process_id, lease in self.leases.items()
                if self.is_alive(process_id)
            ),
            tuple(
                Row(slot, self.disk.epochs[slot], self.owner(slot), row.new_owner)
                for slot, row in self.rows.items()
            ),
        )


class SharedDiskStore(DiskStore, SharedStore):
    """One process's access to it."""

    patience_s = LEASE_S / 2

    def __init__(self, leases: Leases, process: Process) -> None:
        super().__init__(leases.disk, process)
        self.leases = leases
        self.process_id = ""

    @override
    async def register(self, address: str) -> str:
        def work() -> str:
            self.leases.leases.pop(old, None)
            self.leases.registered += 1
            process_id = f"process-{self.leases.registered}"
            until_s = self.disk.loop.now_s + LEASE_S
            self.leases.leases[process_id] = Lease(address, until_s)
            return process_id

        old, self.process_id = self.process_id, ""
        self.process_id = await self.ask(work, within_s=LEASE_S / 3)
        return self.process_id

    @override
    async def renew(self) -> Table:
        def work() -> Table:
            if not self.leases.is_alive(me):
                self.leases.leases.pop(me, None)
                self.disk.fired["a lease is lost"] += 1
                raise LeaseLost("the lease has ended")
            until_s = self.disk.loop.now_s + LEASE_S
            self.leases.leases[me] = self.leases.leases[me]._replace(until_s=until_s)
            for ended in [each for each in self.leases.leases if not self.leases.is_alive(each)]:
                del self.leases.leases[ended]
            return self.leases.table()

        me = self.process_id
        return await self.ask(work, within_s=LEASE_S / 3)

    @override
    async def claim(self, slot: int) -> Claim:
        claim = await self.ask(lambda: self.claimed(slot), slot, within_s=LEASE_S / 2)
        self._broken.discard(slot)
        return claim

    @override
    def claimed(self, slot: int) -> Claim:
        row, me = self.leases.rows[slot], self.process_id
        if self.leases.owner(slot) not in ("", me):
            raise SlotLost("another has it")
        if not self.leases.is_alive(me):
            raise LeaseLost("the lease has ended")
        if row.owner not in ("", me):
            self.disk.fired["a slot is taken from a dead process"] += slot in self.disk.slots
        self.leases.rows[slot] = Owned(owner=me)
        return Claim(super().claimed(slot).epoch, row.handover)

    @override
    async def release(self, slot: int, epoch: int, new_owner: str, handover: bytes) -> None:
        def work() -> None:
            if self.disk.epochs[slot] != epoch or self.leases.rows[slot].owner != me:
                raise SlotLost("an old epoch")
            self.disk.epochs[slot] += 1
            self.leases.rows[slot] = Owned(new_owner=new_owner, handover=handover)
            self.disk.fired["a slot is handed over"] += slot in self.disk.slots

        me = self.process_id
        await self.ask(work, slot, within_s=LEASE_S / 2)

    @override
    async def leave(self) -> None:
        leaving, self.process_id = self.process_id, ""
        await self.ask(lambda: self.leases.leases.pop(leaving, None), within_s=LEASE_S / 3)
