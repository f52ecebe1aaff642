"""Three members, each with its application, while records come all the time; what is done to them, and what they did."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.sidecar.delivery.rounds.engine import Position
from tests.sidecar.delivery.rounds.gaps import gaps_of
from tests.sidecar.delivery.rounds.history import History, Hit, done_by, values_of
from tests.sidecar.delivery.rounds.member import Member, Setting
from tests.sidecar.delivery.rounds.source import Source, Watch, going_on
from tests.support.processes import steady_ms, wait_for

PARTITIONS = 6
MEMBERS = 3
WITHIN_S = 40
EVERYTHING = frozenset(range(PARTITIONS))
RESTART = "SIGTERM, the pod is replaced"
DEATH = "a record kills its application"


class Crew:
    """The members, each on its seat: a pod that ended is followed by another one."""

    def __init__(self, folder: Path, setting: Setting, seed: int) -> None:
        self.chance = random.Random(seed)
        self.setting = setting
        self.source = Source(setting.engine, setting.topic, PARTITIONS)
        self.watch = Watch(setting.engine, setting.group, setting.topic)
        self.members: list[Member] = []
        self.hits: list[Hit] = []
        self.dead: set[Position] = set()
        # All that happened, once everything is done, and before the members are ended.
        self.outcome: History | None = None
        # Whether applications end by themselves, and are started again.
        self.has_deaths = False
        self._folder = folder
        self._past: list[Member] = []

    def assemble(self) -> None:
        """Start them all, and wait until everything is owned."""
        for seat in range(MEMBERS):
            self.members.append(Member(self._folder, self.setting, seat))
            self.members[-1].start()
        self.settle()

    # Waiting

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until the condition holds, and check meanwhile that no process ends unexpectedly."""

        def held() -> bool:
            self._check_running()
            return holds()

        wait_for(what, held, within_s=WITHIN_S)

    def _check_running(self) -> None:
        self.source.steadily.check()
        self.watch.steadily.check()
        for member in self.members:
            member.check()
            if not member.app.is_running:
                assert self.has_deaths, f"{member.app.name} ended:\n{member.app.process.tail()}"
                self.hit(DEATH, member.partitions)
                member.note_death()
                member.app.start()

    def settle(self) -> None:
        """Wait until everything is owned, in equal shares."""
        self.until("every partition has one application, and each as many", self._is_settled)

    def _is_settled(self) -> bool:
        shares = [member.partitions for member in self.members]
        sizes = [len(share) for share in shares]
        return (
            frozenset().union(*shares) == EVERYTHING
            and sum(sizes) == PARTITIONS
            and max(sizes) - min(sizes) <= 1
        )

    def catch_up(self) -> None:
        """Wait until all that is there by now is committed."""
        ends = self.source.ends

        def is_committed() -> bool:
            last = self.watch.last
            return all(last.get(partition, 0) >= end for partition, end in ends.items())

        self.until(f"what was produced is committed: {dict(ends)}", is_committed)

    def wait_for_new_owners(self, partitions: frozenset[int], of: Member) -> None:
        """Until others have what it had."""

        def have_it() -> bool:
            return partitions <= frozenset().union(
                *(each.partitions for each in self.members if each is not of)
            )

        self.until(f"others have what {of.name} had", have_it)

    # What is done to them

    def draw(self) -> Member:
        """One of them."""
        return self.chance.choice(self.members)

    def hit(self, what: str, had: frozenset[int] = frozenset()) -> None:
        """Note that something is done to one; of `had`, what is not committed now may be repeated."""
        committed = self.watch.look() if had else {}
        self.hits.append(Hit(what, steady_ms(), had, committed))

    def restart(self, member: Member) -> None:
        """End its pod in good order, and start another one."""
        self.hit(RESTART)
        member.leave()
        self.replace(member)
        self.settle()

    def replace(self, member: Member) -> None:
        """Another pod on its seat."""
        self._past.append(member)
        number = 1 + sum(each.seat == member.seat for each in self._past)
        self.members[member.seat] = Member(self._folder, self.setting, member.seat, number)
        self.members[member.seat].start()

    # The end

    def history(self) -> History:
        """All that happened so far."""
        topic = self.setting.topic
        everybody = [*self._past, *self.members]
        lives = [(each.name, each.app.events) for each in everybody]
        return History(
            acknowledged=dict(self.source.acknowledged),
            done=[done for name, events in lives for done in done_by(name, topic, events)],
            values=[value for _, events in lives for value in values_of(topic, events)],
            hits=self.hits,
            looks=self.watch.looks,
            gaps=gaps_of(self._lives(everybody), self.hits, {RESTART: self.setting.clean_ms}),
            dead=frozenset(self.dead),
        )

    def _lives(
        self, everybody: Sequence[Member]
    ) -> Iterator[tuple[str, list[tuple[int, str, frozenset[int]]]]]:
        for each in everybody:
            events = [
                (
                    event["monotonic_ms"],
                    event["event"],
                    frozenset(number for _, number in event["partitions"]),
                )
                for event in each.app.events
                if "partitions" in event
            ]
            yield each.name, [*events, *((at_ms, "ended", EVERYTHING) for at_ms in each.ended_ms)]

    def close(self) -> None:
        """End who is left."""
        for member in [*self._past, *self.members]:
            member.close()


@contextmanager
def crew_of(folder: Path, setting: Setting, seed: int) -> Iterator[Crew]:
    """A crew that owns everything; records come, and commits are watched, until the block ends."""
    setting.engine.make_topic(setting.topic, PARTITIONS)
    crew = Crew(folder, setting, seed)
    try:
        crew.assemble()
        with going_on(crew.watch.steadily):
            with going_on(crew.source.steadily):
                crew.catch_up()
                yield crew
            crew.catch_up()
        crew.outcome = crew.history()
    except Exception as error:
        # What did not come in time has a reason, and a rule may know it.
        error.add_note("\n".join(crew.history().faults()))
        raise
    finally:
        crew.close()
