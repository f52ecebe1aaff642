"""
Ownership of slots by this process: `ExclusiveOwnership` owns all slots, on a store that only this process uses;
`SharedOwnership` owns a share of them while it renews its lease.

`router.Service.run` calls `run_once` in a loop. In: the store's slot table. Out: starts, stops and handovers of slots.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from typing_extensions import override

from rota_coordinator.core.slots.share import Transfer, new_owners, share, targets
from rota_coordinator.core.slots.table import Table, empty_rows
from rota_coordinator.runtime.replicated_state import Machine, ReplicatedState, SlotState
from rota_coordinator.runtime.slot import Slot
from rota_coordinator.store.port import LeaseLost, SharedStore, SlotLost, StoreError, StoreTakenOver
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

# A slot that is handed over waits at most this long for its new owner to poll.
LOOK_MS = 1_000
# Poll interval while the share is incomplete, since its slots may be about to be released.
POLL_MS = 100
# Number of slot logs that are loaded concurrently.
READERS = 4


class SlotOwner(NamedTuple):
    """The address and epoch of the process that serves a slot."""

    # host:port; empty while no process serves the slot.
    address: str
    epoch: int


class Ownership(Protocol):
    """Decides which slots this process serves, and finds the owners of the others."""

    async def run_once(self) -> float:
        """Claim, hand over and restart slots as needed; return the seconds until the next run."""
        ...

    def slot_owner(self, slot: Slot) -> SlotOwner:
        """Return the owner of the slot."""
        ...

    def missing(self) -> str:
        """Return the reason why this process does not serve all its slots; empty when it does."""
        ...

    async def leave(self) -> None:
        """Stop serving all slots, and release them so that other processes can claim them at once."""
        ...


def unserved(slots: Collection[Slot]) -> str:
    """Return a message about slots that are not served yet; empty when all are."""
    waiting = [slot.number for slot in slots if slot.state is not SlotState.READY]
    return (
        f"{len(waiting)} of {len(slots)} slots are not served yet, the first is slot {waiting[0]}"
        if waiting
        else ""
    )


class DedupedReporter:
    """Reports a problem once until it changes or is recovered, and its recovery once."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._said: dict[str, str] = {}

    def failed(self, thing: str, problem: Exception) -> None:
        """Report a problem, unless the same one was reported last."""
        text = f"{thing}: {problem}; retrying"
        if self._said.get(thing) != text:
            self._said[thing] = text
            self._report(text)

    def recovered(self, thing: str) -> None:
        """Report the end of a problem, if one was reported."""
        if self._said.pop(thing, None) is not None:
            self._report(f"{thing}: recovered")


async def start_if_down(state: ReplicatedState[Machine], reporter: DedupedReporter) -> None:
    """Start a state that is not served, on a store that only this process can open."""
    if state.state is SlotState.DOWN:
        try:
            await state.start()
            reporter.recovered(state.replica.name)
        except StoreTakenOver:
            raise  # ends the process: claiming the log again would take it from its new owner
        except StoreError as error:
            reporter.failed(state.replica.name, error)


class ExclusiveOwnership(Ownership):
    """Ownership of all slots, on a store that only this process can open."""

    def __init__(
        self, slots: Sequence[Slot], address: Callable[[], str], report: Callable[[str], None]
    ) -> None:
        self._slots = slots
        self._address = address
        self._reporter = DedupedReporter(report)

    @override
    async def run_once(self) -> float:
        for slot in self._slots:
            await start_if_down(slot, self._reporter)
        return LOOK_MS / 1000

    @override
    def slot_owner(self, slot: Slot) -> SlotOwner:
        return SlotOwner("" if slot.state is SlotState.DOWN else self._address(), slot.epoch)

    @override
    def missing(self) -> str:
        return unserved(self._slots)

    @override
    async def leave(self) -> None:
        for slot in self._slots:
            await slot.finish()


class Lease:
    """
    The lease of this process, on its own clock.

    Invariant: it never ends later than in the store, because its duration counts from before the store's renewal.
    """

    def __init__(self, now_ms: Callable[[], int], length_ms: int) -> None:
        self.length_ms = length_ms
        self._now_ms = now_ms
        self._until_ms = 0

    def asked(self) -> int:
        """Return the end of a lease that is requested now, in ms."""
        return self._now_ms() + self.length_ms

    def renewed(self, until_ms: int) -> None:
        """Extend the lease; the store has renewed it."""
        self._until_ms = until_ms

    def lost(self) -> None:
        """End the lease; the store has rejected its renewal."""
        self._until_ms = 0

    def runs(self) -> bool:
        return self._now_ms() < self._until_ms


class OwnershipCallbacks(NamedTuple):
    """Callbacks from ownership to the log and to the sessions."""

    report: Callable[[str], None]
    # Sends members of these groups to the coordinator at this address.
    go_away: Callable[[Collection[str], str], None]


class SharedOwnership(Ownership):
    """Ownership of a share of the slots, on a store that several processes use."""

    def __init__(
        self,
        store: SharedStore,
        slots: Sequence[Slot],
        address: Callable[[], str],
        lease: Lease,
        callbacks: OwnershipCallbacks,
    ) -> None:
        self.table = Table((), empty_rows(range(len(slots))))
        self._store = store
        self._slots = slots
        self._address = address
        self._lease = lease
        self._callbacks = callbacks
        self._reporter = DedupedReporter(callbacks.report)
        self._me = ""
        self._readers = asyncio.Semaphore(READERS)
        # Slots that are being claimed or handed over; no other action is started for them meanwhile.
        self._moving: dict[int, asyncio.Task[None]] = {}

    @override
    async def run_once(self) -> float:
        until_ms = self._lease.asked()
        try:
            if not self._me:
                self._me = await self._store.register(self._address())
                until_ms = self._lease.asked()
            self.table = await self._store.renew()
        except LeaseLost as error:
            self._lose(str(error))
            return POLL_MS / 1000
        except StoreError as error:
            # The lease may still be valid. Once it has expired, watches end here; requests are refused without this.
            for slot in self._slots:
                slot.check_lease()
            self._reporter.failed("the slot table", error)
            return POLL_MS / 1000
        self._reporter.recovered("the slot table")
        self._lease.renewed(until_ms)
        self._stop_foreign()
        self._move()
        complete = len(self.table.owned_by(self._me)) >= targets(self.table).get(self._me, 0)
        return (min(self._lease.length_ms // 3, LOOK_MS) if complete else POLL_MS) / 1000

    @override
    def slot_owner(self, slot: Slot) -> SlotOwner:
        if slot.state is not SlotState.DOWN and self._lease.runs():
            return SlotOwner(self._address(), slot.epoch)
        row = self.table.rows[slot.number]
        return SlotOwner("" if row.owner == self._me else self.table.address_of(row.owner), row.epoch)

    @override
    def missing(self) -> str:
        if not self._lease.runs():
            return "this process holds no lease in the store"
        return unserved([self._slots[number] for number in self.table.owned_by(self._me)])

    @override
    async def leave(self) -> None:
        for task in list(self._moving.values()):
            task.cancel()
        await asyncio.gather(*self._moving.values(), return_exceptions=True)
        others = Table(
            tuple(process for process in self.table.processes if process.process_id != self._me),
            tuple(row._replace(owner="") if row.owner == self._me else row for row in self.table.rows),
        )
        heir_of = new_owners(others, targets(others))
        owned = [slot for slot in self._slots if slot.state is SlotState.READY]
        await asyncio.gather(
            *(self._give(Transfer(slot.number, heir_of.get(slot.number, ""))) for slot in owned)
        )
        for slot in self._slots:
            slot.stop(pb.NOT_COORDINATOR)
        try:
            await self._store.leave()
        except StoreError as error:
            self._callbacks.report(f"could not leave the store, the lease will expire: {error}")

    def _lose(self, why: str) -> None:
        """Stop all slots after the lease was lost, and register as a new process."""
        self._callbacks.report(f"{why}; serving no slots until a new lease is granted")
        self._lease.lost()
        self._me = ""
        for task in self._moving.values():
            task.cancel()
        for slot in self._slots:
            if slot.state is not SlotState.DOWN:
                slot.stop(pb.NOT_COORDINATOR)

    def _stop_foreign(self) -> None:
        """Stop slots that the table assigns to other processes. A row older than this process's claim is ignored."""
        for slot in self._slots:
            row = self.table.rows[slot.number]
            newer = row.epoch > slot.epoch or (row.epoch == slot.epoch and row.owner != self._me)
            if slot.state is SlotState.READY and newer and slot.number not in self._moving:
                slot.stop(pb.NOT_COORDINATOR)

    def _move(self) -> None:
        part = share(self.table, self._me)
        for number in [*part.claim, *self.table.owned_by(self._me)]:
            if self._slots[number].state is SlotState.DOWN:
                self._begin(number, partial(self._take, number))
        for transfer in part.give:
            self._begin(transfer.slot, partial(self._give, transfer))

    def _begin(self, number: int, move: Callable[[], Coroutine[None, None, None]]) -> None:
        if number not in self._moving:
            self._moving[number] = asyncio.create_task(move())
            self._moving[number].add_done_callback(lambda _: self._moving.pop(number))

    async def _take(self, number: int) -> None:
        slot = self._slots[number]
        async with self._readers:
            try:
                await slot.start()
                self._reporter.recovered(f"slot {number}")
            except SlotLost:
                pass  # another process was faster; the next reading of the table shows it
            except StoreError as error:
                self._reporter.failed(f"slot {number}", error)

    async def _give(self, transfer: Transfer) -> None:
        slot = self._slots[transfer.slot]
        handover = await slot.finish()
        if handover is None:
            return
        try:
            await self._store.release(
                slot.number, slot.epoch, transfer.new_owner, handover.SerializeToString()
            )
        except StoreError as error:
            self._callbacks.report(f"slot {slot.number}: {error}; the slot was not handed over")
            return
        self._callbacks.go_away(slot.groups.groups.keys(), self.table.address_of(transfer.new_owner))
