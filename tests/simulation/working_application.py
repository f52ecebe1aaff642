"""The application beside a simulated sidecar: it takes records, works on several at a time, and says what became of them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.ledger.batches import Ordering
from rota_sidecar.core.ledger.rules import Verdict
from rota_sidecar.core.member.partitions import Partition
from tests.simulation.invariants import Violation
from tests.simulation.topic import is_record, key_of

if TYPE_CHECKING:
    from tests.simulation.shell import DeliveryShell

CREDIT_MAX = 64
FINAL = (Verdict.ACK, Verdict.SKIP)
# After an event the application is back in time for the next one.
ACKNOWLEDGES_WITHIN_S = 0.5
COMES_BACK_WITHIN_S = 3.0
NEVER_S = 1e6
SLICE_S = 0.5


@dataclass(slots=True)
class Held:
    """A record in flight."""

    delivery_epoch: int
    partition: Partition
    offset: int
    since_s: float


@dataclass(slots=True)
class Book:
    """State of a ledger as the application knows it."""

    delivery_epoch: int
    partition: Partition
    # In order of partitions: what it works through one after the other.
    queue: list[int] = field(default_factory=list)
    works: bool = False
    seen: int = -1


class WorkingApplication:
    """One attachment after the other."""

    def __init__(self, shell: "DeliveryShell") -> None:
        self._shell = shell
        self._world = shell.world
        self._session = 0
        self._credit = 0
        self._held: dict[tuple[int, int], Held] = {}
        self._books: dict[int, Book] = {}
        # May be handed out: told of, and neither revoked nor lost.
        self._mine: set[Partition] = set()
        # The ledger of a partition's present tenure.
        self._current: dict[Partition, int] = {}
        self._lies: set[tuple[int, int]] = set()
        self.is_attached = False
        self._said_goodbye = False

    async def run(self) -> None:
        """Be there, and from time to time crash and come back, until it has said goodbye."""
        chance, plan = self._world.chance, self._shell.plan
        while not self._said_goodbye:
            await asyncio.sleep(chance.uniform(0, 0.5))
            self._attach()
            await asyncio.sleep(chance.expovariate(1 / (plan.crash_every_s or NEVER_S)))
            if self._world.calm or self._said_goodbye:
                return
            self.crash()
            await asyncio.sleep(chance.uniform(0, COMES_BACK_WITHIN_S))

    def _attach(self) -> None:
        self._session += 1
        self.is_attached = True
        self._credit = 0
        self._shell.feed(on.Attached(self._session, takes_many=self._shell.plan.takes_many))
        self._grant(self._world.chance.randint(1, CREDIT_MAX))

    def crash(self) -> None:
        """Forget all records in flight; no verdict on them follows."""
        self._world.situations.met["an application crashes with records in its hands"] += bool(self._held)
        self._detach(clean=False)

    def say_goodbye(self) -> None:
        """End in good order, and do not come back."""
        self._said_goodbye = True
        if self.is_attached:
            self._detach(clean=True)

    def _detach(self, *, clean: bool) -> None:
        self.is_attached = False
        self._held.clear()
        self._books.clear()
        self._mine.clear()
        self._shell.feed(on.Detached(self._session, clean=clean))

    def _grant(self, records: int) -> None:
        self._credit += records
        self._shell.feed(on.Credit(records))

    # What it is told.

    def notify(self, event: do.AssignmentEvent) -> None:
        """Something happens to partitions."""
        if event.kind is do.Kind.ASSIGNED:
            self._mine |= event.partitions
        else:
            self._mine -= event.partitions
            for partition in event.partitions:
                self._current.pop(partition, None)
        match event.kind:
            case do.Kind.ASSIGNED:
                self._spawn(self._acknowledge, event.event_id)
            case do.Kind.REVOKING:
                self._spawn(self._finish, event, self._world.chance.choice([0, 0.2, 10]))
            case do.Kind.LOST:
                # Verdicts on what it works on meanwhile come late.
                self._spawn(self._finish, event, self._world.chance.choice([0, 100]))
            case do.Kind.REVOKED:
                pass

    async def _acknowledge(self, event_id: int) -> None:
        await asyncio.sleep(
            self._world.chance.uniform(0, 0.01 if self._world.calm else ACKNOWLEDGES_WITHIN_S)
        )
        self._shell.feed(on.Acknowledged(event_id))

    async def _finish(self, event: do.AssignmentEvent, patience_s: float) -> None:
        """Finish what it works on, or stop in the midst of it; what it has not begun goes back."""
        for book in self._books.values():
            if book.partition in event.partitions:
                self._give_back([(book.delivery_epoch, offset) for offset in book.queue[1:]])
                del book.queue[1:]
        while patience_s > 0 and any(self.holds(partition) for partition in event.partitions):
            await asyncio.sleep(0.02)
            patience_s -= 0.02
        self._drop(event.partitions)
        await self._acknowledge(event.event_id)

    def _drop(self, partitions: frozenset[Partition]) -> None:
        self._give_back([key for key, held in self._held.items() if held.partition in partitions])
        for book in self._books.values():
            if book.partition in partitions:
                book.queue.clear()

    def _give_back(self, dropped: list[tuple[int, int]]) -> None:
        for key in dropped:
            del self._held[key]
        if dropped:
            self._grant(len(dropped))

    def deliver(self, delivered: do.Deliver) -> None:
        """Records: its own, in order, and no more than it has room for."""
        self._check_right(delivered)
        self._current[delivered.partition] = delivered.delivery_epoch
        book = self._books.setdefault(
            delivered.delivery_epoch, Book(delivered.delivery_epoch, delivered.partition)
        )
        for batch_slice in delivered.dispatch.slices:
            for offset in range(batch_slice.first, batch_slice.end):
                self._take(delivered, book, offset)
        self._credit -= delivered.dispatch.count
        if self._credit < 0:
            raise Violation("S14", f"{-self._credit} records are handed out without credit")
        if self._shell.plan.ordering is Ordering.PARTITION and not book.works:
            book.works = True
            self._spawn(self._work_through, delivered.delivery_epoch)

    def _check_right(self, delivered: do.Deliver) -> None:
        if not self.is_attached:
            raise Violation("S9", f"{delivered.partition} is handed out, and nobody is there")
        if delivered.partition not in self._mine:
            raise Violation(
                "S9", f"{delivered.partition} is handed out after it was taken, or before it was given"
            )

    def _take(self, delivered: do.Deliver, book: Book, offset: int) -> None:
        delivery_epoch = delivered.delivery_epoch
        if not is_record(offset) or (delivery_epoch, offset) in self._held:
            raise Violation(
                "S8", f"{delivered.partition}@{offset} is handed out, and is in hand or no record"
            )
        self._check_order(delivery_epoch, book, offset)
        self._held[delivery_epoch, offset] = Held(
            delivery_epoch, delivered.partition, offset, self._world.loop.now_s
        )
        book.seen = max(book.seen, offset)
        if self._shell.plan.ordering is Ordering.PARTITION:
            book.queue.append(offset)
        else:
            self._spawn(self._work_on, delivery_epoch, offset)

    def _check_order(self, delivery_epoch: int, book: Book, offset: int) -> None:
        ordering = self._shell.plan.ordering
        if ordering is Ordering.PARTITION and book.queue and offset < book.queue[-1]:
            raise Violation("S8", f"{book.partition}@{offset} is handed out behind {book.queue[-1]}")
        if ordering is Ordering.KEY and key_of(offset) is not None:
            others = [
                each
                for number, each in self._held
                if number == delivery_epoch and key_of(each) == key_of(offset)
            ]
            if others:
                raise Violation("S8", f"{book.partition}@{offset} does not wait for {others} of its key")

    # What it does.

    async def _work_through(self, delivery_epoch: int) -> None:
        book = self._books[delivery_epoch]
        while book.queue:
            await self._work_on(delivery_epoch, book.queue[0])
        book.works = False

    async def _work_on(self, delivery_epoch: int, offset: int) -> None:
        session = self._session
        await self._spend(self._duration_s())
        held = self._held.pop((delivery_epoch, offset), None)
        if held is None or session != self._session:
            return
        book = self._books[delivery_epoch]
        verdict = self._verdict()
        dropped = [offset]
        if self._shell.plan.ordering is Ordering.PARTITION:
            book.queue.remove(offset)
            if verdict is Verdict.RETRY:
                dropped += book.queue
                for behind in book.queue:
                    del self._held[delivery_epoch, behind]
                book.queue.clear()
        if verdict in FINAL:
            self._shell.did(held.partition, offset)
        self._judge(held, verdict)
        self._grant(len(dropped))

    async def _spend(self, seconds: float) -> None:
        """Work; who hangs comes to himself when all is healed."""
        while seconds > 0:
            await asyncio.sleep(min(seconds, SLICE_S))
            seconds = 0 if self._world.calm else seconds - SLICE_S

    def _judge(self, held: Held, verdict: Verdict) -> None:
        judgement = on.Judgement(held.delivery_epoch, held.partition, held.offset, held.offset, verdict)
        if held.partition not in self._mine:
            self._world.situations.met["a verdict comes after its tenure"] += 1
        self._shell.feed(on.Judged((judgement,)))
        chance = self._world.chance
        if not self._world.calm and chance.random() < self._shell.plan.lie_rate:
            # Of a record that it does not have: it was judged just now, or is in the future.
            wrong = held.offset + chance.choice([0, 0, 1000])
            self._lies.add((held.delivery_epoch, wrong))
            lie = on.Judgement(held.delivery_epoch, held.partition, wrong, wrong, Verdict.ACK)
            self._world.situations.met["an application lies"] += 1
            self._shell.feed(on.Judged((lie,)))

    def refuse(self, refused: do.Refuse) -> None:
        """Record a refused verdict; the application must have sent a wrong one on purpose."""
        if (refused.delivery_epoch, refused.offset) not in self._lies:
            raise Violation(
                "S8", f"a verdict on {refused.partition}@{refused.offset} is refused: {refused.message}"
            )

    def _duration_s(self) -> float:
        chance, plan = self._world.chance, self._shell.plan
        if not self._world.calm and chance.random() < plan.hang_rate:
            self._world.situations.met["an application hangs over a record"] += 1
            return chance.uniform(0.5, 3) * plan.processing_timeout_s
        return chance.expovariate(1 / plan.work_s)

    def _verdict(self) -> Verdict:
        if self._world.calm:
            return Verdict.ACK
        return self._world.chance.choices(list(Verdict), [90, 6, 2, 2])[0]

    def oldest_s(self, partitions: set[Partition]) -> float | None:
        """Since when it has held a record of these in their present tenure."""
        return min(
            (
                each.since_s
                for each in self._held.values()
                if each.partition in partitions and self._current.get(each.partition) == each.delivery_epoch
            ),
            default=None,
        )

    def holds(self, partition: Partition) -> bool:
        """Return whether the application has records of the partition in flight."""
        return any(each.partition == partition for each in self._held.values())

    def _spawn(self, work: Callable[..., object], *arguments: object) -> None:
        session = self._session

        async def while_attached() -> None:
            if session == self._session:
                await work(*arguments)  # type: ignore[misc]

        self._shell.member.process.spawn(while_attached())
