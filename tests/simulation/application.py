"""The application of a simulated member: it works through its partitions in order, commits, and lets go when it has to."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member.partitions import Offset, Partition
from tests.conformance.members import TOPIC
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.member import SimulatedMember

PACE_S = 1.0
RETRY_S = 0.3
RECORDS_MAX = 3
# The commit may have been applied, or may yet be: nobody has answered, or the coordinator before its write had ended.
UNKNOWN = (pb.NOT_COORDINATOR, pb.REQUEST_TIMED_OUT)
Error: TypeAlias = pb.ErrorCode.ValueType
SILENCE = "answered within the session timeout"
LOSSES = {
    SILENCE: "a member gives everything up for the silence of the coordinator",
    "did not release": "an application does not let go in time",
}


@dataclass(slots=True)
class Work:
    """On one partition in one tenure."""

    tenure: int
    position: int
    committed: int
    # A commit of this tenure has no answer.
    in_doubt: bool = False
    stopped: bool = False


@dataclass(slots=True)
class Lost:
    """A former tenure and its end: a verdict on its records comes late."""

    offsets: dict[int, Offset] = field(default_factory=dict)
    generation: int = -1


class Application:
    """The application beside a member core: takes its events; commits, fetches and acknowledges."""

    def __init__(self, world: World, member: "SimulatedMember") -> None:
        self.world = world
        self.member = member
        self.working: dict[int, Work] = {}
        self.lost = Lost()
        # The generation that it was told of last.
        self.generation = -1
        self._requests = 0
        self._losses = 0
        self._answers: dict[int, asyncio.Future[do.Committed | do.Fetched]] = {}
        self._committing = False
        self._stopped_s = 0.0

    async def run(self) -> None:
        """Work, and commit what was done."""
        while not self.member.has_ended:
            await asyncio.sleep(PACE_S * (0.5 + self.world.chance.random()))
            self._work()
            if self.working and not self._committing:
                self.member.process.spawn(self._report())
            self._speak_late()

    def _work(self) -> None:
        # A process that was frozen works on until its core has looked at the clock, which nothing can prevent.
        was_frozen = self.member.process.stopped_s != self._stopped_s
        self._stopped_s = self.member.process.stopped_s
        in_round = self.member.in_round
        for number, work in self.working.items():
            if not work.stopped:
                until = work.position + self.world.chance.randint(1, RECORDS_MAX)
                self.member.history.did(number, work.position, until)
                if not was_frozen and not in_round:
                    self.member.history.works(
                        self.member.process, number, self.world.loop.now_s, self.member.round_ended_s
                    )
                work.position = until

    def on_member_action(self, action: do.Action) -> None:
        """The core says something that concerns the application."""
        match action:
            case do.Assign():
                for partition in action.partitions:
                    self.lost.offsets.pop(partition.number, None)
                self.member.process.spawn(self._begin(action.tenure.number, action.partitions))
            case do.Revoke():
                self._notify_of_revoke()
                self.member.process.spawn(self._let_go(action))
            case do.Revoked():
                self._drop(action.partitions, in_good_order=True)
            case do.Lost():
                self._losses += 1
                self._note_loss(action.reason)
                self._drop(action.partitions, in_good_order=False)
            case do.CoordinatorRegained():
                # This application commits again at its own pace.
                pass
            case do.Committed() | do.Fetched():
                self._answers.pop(action.request).set_result(action)
            case _:
                raise AssertionError(f"nobody here knows what {action} is")

    def _notify_of_revoke(self) -> None:
        notify, self.world.on_revoke = self.world.on_revoke, None
        if notify is not None:
            notify(self.member)

    def _note_loss(self, reason: str) -> None:
        met = self.world.situations.met
        for part, situation in LOSSES.items():
            met[situation] += part in reason
        if SILENCE in reason:
            # Before the coordinator takes it for silent too, or after.
            for delay_s in (0.0, self.world.chance.uniform(0, 0.5), self.world.chance.uniform(0.5, 1.5)):
                late = (self.member.member_id, self.generation)
                self.world.loop.call_later(delay_s, self.member.heartbeat_late, *late)

    async def _begin(self, tenure: int, partitions: frozenset[Partition]) -> None:
        """Find out where to begin, as long as the partitions are its own."""
        held = self.member.core.held
        while mine := [each for each in partitions if each in held and held[each].number == tenure]:
            fetched = await self._ask(on.Fetch(self._number(), sorted(mine)))
            assert isinstance(fetched, do.Fetched)
            if fetched.error == pb.NONE:
                for topic in fetched.topics:
                    for each in topic.partitions:
                        self._begin_at(Partition(topic.name, each.index), tenure, max(each.offset, 0))
                return
            await asyncio.sleep(RETRY_S)

    def _begin_at(self, partition: Partition, tenure: int, start: int) -> None:
        held = self.member.core.held.get(partition)
        if held is not None and held.number == tenure:
            self.member.history.begins(partition.number, start)
            self.working[partition.number] = Work(tenure, start, start)

    async def _let_go(self, order: do.Revoke) -> None:
        """Finish what is in hand, commit it, and say so; an application may be slow, or never come to it."""
        numbers = sorted(each.number for each in order.partitions)
        for number in numbers:
            if number in self.working:
                self.working[number].stopped = True
        chance = self.world.chance
        if not self.world.calm:
            if chance.random() < self.world.plan.hang_rate:
                return
            await asyncio.sleep(chance.choice([0, 0.1, 1]) * chance.random())
        while self._is_unsaid(numbers) and int(self.world.loop.now_s * 1000) < order.deadline_ms:
            if self._committing:
                await asyncio.sleep(RETRY_S / 10)
            elif not await self._commit(numbers):
                await asyncio.sleep(RETRY_S)
        self.member.feed(on.PartitionsReleased(order.revocation))

    def _is_unsaid(self, numbers: list[int]) -> bool:
        return any(work.committed < work.position for n in numbers if (work := self.working.get(n)))

    async def _report(self) -> None:
        """Commit all that it works on; what fails is committed with the next."""
        await self._commit(list(self.working))

    async def _commit(self, numbers: list[int]) -> bool:
        """Commit how far it is; one commit at a time. Whether all of it was committed."""
        identity = self.member.core.identity
        offsets = {number: self.working[number].position for number in numbers if number in self.working}
        if not offsets or identity.generation < 0:
            return False
        commit = self.member.history.committing(identity.member_id, identity.generation, offsets)
        # Who lost everything and came back in the same generation may be overtaken by what it sent before.
        commit.sender = (self.member.process, self._losses)
        self.member.history.check_done(commit)
        said = {
            Partition(TOPIC, number): Offset(self.working[number].tenure, offset, metadata=str(commit.number))
            for number, offset in offsets.items()
        }
        self._committing = True
        outcome = await self._ask(on.Commit(self._number(), said))
        self._committing = False
        assert isinstance(outcome, do.Committed)
        for partition, error in outcome.errors.items():
            self._note(partition.number, said[partition], error)
        return all(error == pb.NONE for error in outcome.errors.values())

    def _note(self, number: int, said: Offset, error: Error) -> None:
        work = self.working.get(number)
        if work is None or work.tenure != said.tenure:
            return
        if error == pb.NONE:
            work.committed = max(work.committed, said.offset)
        elif error in UNKNOWN:
            work.in_doubt = True

    def _drop(self, partitions: frozenset[Partition], *, in_good_order: bool) -> None:
        """Drop partitions; from now on another member may own them."""
        history = self.member.history
        lost: dict[int, Offset] = {}
        for number in sorted(partition.number for partition in partitions):
            history.gives_up_one(self.member.process, number)
            work = self.working.pop(number, None)
            if work is not None:
                lost[number] = Offset(work.tenure, work.position)
            is_clean = in_good_order and work is not None and not work.in_doubt
            if is_clean and work is not None and work.committed == work.position:
                history.releases[number] = work.position
                self.world.situations.met["a partition is handed over in good order"] += 1
        if lost:
            self.lost = Lost(lost, self.generation)

    def _speak_late(self) -> None:
        """A verdict on what it lost: the core refuses it, and the coordinator those of others who ask no core."""
        chance = self.world.chance
        if self.member.stable and chance.random() < self.world.plan.late_verdict_rate / 4:
            # Somebody who is confused about what it has.
            number = chance.randrange(self.world.plan.partitions)
            if Partition(TOPIC, number) not in self.member.core.held:
                next_offset = self.member.history.done_to(number) + 1
                self.member.say_late({number: next_offset}, self.generation)
        if not self.lost.offsets or chance.random() >= self.world.plan.late_verdict_rate:
            return
        lost = self.lost
        if chance.random() < 0.5:
            self.lost = Lost()
        if chance.random() < 0.1:
            said = {Partition(TOPIC, number): each for number, each in lost.offsets.items()}
            self.member.process.spawn(self._try_late(said))
        else:
            now = chance.random() < 0.9 and self.member.stable
            generation = self.member.generation if now else lost.generation
            self.member.say_late({n: each.offset + 1 for n, each in lost.offsets.items()}, generation)

    async def _try_late(self, said: dict[Partition, Offset]) -> None:
        identity = self.member.core.identity
        offsets = {partition.number: offset.offset for partition, offset in said.items()}
        commit = self.member.history.committing(identity.member_id, identity.generation, offsets)
        late = {each: offset._replace(metadata=str(commit.number)) for each, offset in said.items()}
        outcome = await self._ask(on.Commit(self._number(), late))
        assert isinstance(outcome, do.Committed)
        self.world.situations.met["a verdict comes after its tenure"] += 1
        self.member.history.late_verdict(outcome.errors.values())

    def _number(self) -> int:
        self._requests += 1
        return self._requests

    async def _ask(self, event: on.Commit | on.Fetch) -> do.Committed | do.Fetched:
        answer: asyncio.Future[do.Committed | do.Fetched] = self.world.loop.create_future()
        self._answers[event.request] = answer
        self.member.feed(event)
        return await answer
