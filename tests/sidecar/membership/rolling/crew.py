"""Five members of one group, one of which after the other is restarted, killed or frozen."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.sidecar.membership.rolling.hand import Hand, Notes
from tests.sidecar.membership.rolling.history import History, Limits
from tests.support.processes import wait_for
from tests.support.sidecar import TOPIC, Partition, Sidecar

PARTITIONS = 12
MEMBERS = 5
WITHIN_S = 60
TURNS_TO_A_LOOK = 10


@dataclass(frozen=True)
class Group:
    """Settings of the members, and the limits that they have to meet."""

    servers: str
    name: str
    limits: Limits
    flags: Sequence[str] = ()
    topic: str = TOPIC
    is_static: bool = False
    # With an eager strategy a round takes everything from everybody, and then waits for who is dead.
    is_eager: bool = False


class Crew:
    """The members, each on its seat: who was ended is followed by another process."""

    def __init__(self, folder: Path, group: Group, seed: int) -> None:
        # Who is hit and when is drawn apart from what depends on how fast things go.
        self.chance = random.Random(seed)
        self.partitions: list[Partition] = [(group.topic, number) for number in range(PARTITIONS)]
        self.members: list[Hand] = []
        self._folder = folder
        self._group = group
        self._notes = Notes(random.Random(seed))
        self._past: list[Hand] = []
        self._turns = 0

    def assemble(self) -> None:
        """Start them all, and wait until everything is owned."""
        for seat in range(MEMBERS):
            self.members.append(self._hand(seat))
        self.settle()

    def _hand(self, seat: int) -> Hand:
        member = f"member-{seat}"
        number = sum(hand.seat == seat for hand in self._past) + 1
        flags = [f"--topics={self._group.topic}", "--acknowledge=manual", *self._group.flags]
        if self._group.is_static:
            flags.append(f"--group-instance-id={member}")
        name = f"{member}.{number}"
        sidecar = Sidecar(self._folder, self._group.servers, self._group.name, flags, name=name)
        sidecar.start()
        return Hand(sidecar, seat, member if self._group.is_static else name, self._notes)

    # Waiting

    def turn(self) -> None:
        """Let each member handle events and work; sometimes one polls the committed offsets."""
        self._turns += 1
        for hand in self.members:
            hand.turn()
            assert hand.is_leaving or hand.sidecar.is_running, hand.sidecar.log
        if self._turns % TURNS_TO_A_LOOK == 0:
            looking = [hand for hand in self.members if hand.is_settled and not hand.is_leaving]
            if looking:
                self._notes.chance.choice(looking).read(self.partitions)

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Work on until it holds."""

        def held() -> bool:
            self.turn()
            return holds()

        wait_for(what, held, within_s=WITHIN_S)

    def settle(self) -> None:
        """Wait until everything is owned, and nothing is under way."""
        self.until("everything is owned, in equal shares", lambda: self.is_settled)

    @property
    def is_settled(self) -> bool:
        shares = [len(hand.tenures) for hand in self.members]
        return (
            all(hand.is_settled for hand in self.members)
            and len({hand.generation for hand in self.members}) == 1
            and sum(shares) == PARTITIONS
            and max(shares) - min(shares) <= 1
        )

    # What is done to them

    def restart(self) -> None:
        """Stop one in good order; it is replaced once it has ended. Returns when its successor has joined."""
        seat = self._draw()
        leaving = self.members[seat]
        leaving.terminate()
        self.until("a process that was told to end has ended", lambda: not leaving.sidecar.is_running)
        assert leaving.sidecar.wait_for_exit() == 0, leaving.sidecar.log
        self._replace(seat)
        self.until("the successor has joined", lambda: self.members[seat].generation > 0)

    def kill(self) -> None:
        """Kill one; its successor may come before the others know."""
        self.settle()
        seat = self._draw()
        dead = self.members[seat]
        dead.kill()
        dead.turn()
        orphans = set(dead.tenures)
        is_early = self._group.is_static or (not self._group.is_eager and self.chance.random() < 0.5)
        if is_early:
            self._replace(seat)
        else:
            self._past.append(self.members.pop(seat))
            self._wait_for_owners(orphans, self.members)
            self.members.insert(seat, self._hand(seat))
        self.settle()

    def freeze(self) -> None:
        """Freeze one until others have what it had; it comes back with commits for that."""
        self.settle()
        frozen = self.members[self._draw()]
        frozen.freeze()
        frozen.turn()
        tenures, positions = dict(frozen.tenures), dict(frozen.positions)
        self._wait_for_owners(set(tenures), [hand for hand in self.members if hand is not frozen])
        # The first thing that it hears, and once more when it knows.
        frozen.commit_late(tenures, positions)
        frozen.wake()
        self.settle()
        frozen.commit_late(tenures, positions)
        # Who is killed before it has answered never does.
        self.settle()

    def _wait_for_owners(self, orphans: set[Partition], members: Sequence[Hand]) -> None:
        def have_owners() -> bool:
            return orphans <= {partition for hand in members for partition in hand.positions}

        self.until("others have what a dead member had", have_owners)

    def _draw(self) -> int:
        return self.chance.randrange(MEMBERS)

    def _replace(self, seat: int) -> None:
        gone = self.members[seat]
        gone.turn()
        self._past.append(gone)
        self.members[seat] = self._hand(seat)

    # The end

    def look_at_last(self) -> None:
        """Let each member poll all committed offsets, and wait for the responses."""
        self.settle()
        for hand in self.members:
            hand.read(self.partitions)
        members = self.members
        self.until(
            "everything is answered",
            lambda: not any(hand.reads_under_way for hand in members),
        )

    def history(self) -> History:
        """All that was seen so far."""
        members = [*self._past, *self.members]
        unanswered = [commit for hand in members for commit in hand.unanswered()]
        return History(
            self.partitions,
            self._group.limits,
            [hand.life() for hand in members],
            [*self._notes.commits, *unanswered],
            self._notes.reads,
            self._notes.starts,
        )

    def dismiss(self) -> None:
        """Stop all of them at once, in good order."""
        for hand in self.members:
            hand.terminate()
        self.until("all have ended", lambda: not any(hand.sidecar.is_running for hand in self.members))
        for hand in self.members:
            assert hand.sidecar.wait_for_exit() == 0, hand.sidecar.log

    def close(self) -> None:
        """End who is left, and what is open."""
        for hand in [*self._past, *self.members]:
            hand.sidecar.stop()


@contextmanager
def crew_of(folder: Path, group: Group, seed: int) -> Iterator[Crew]:
    """A crew that owns everything, and ends with the block."""
    crew = Crew(folder, group, seed)
    try:
        crew.assemble()
        yield crew
    except Exception as error:
        # What did not come in time has a reason, and a rule may know it.
        error.add_note("\n".join(crew.history().faults()))
        raise
    finally:
        crew.close()


def play(crew: Crew, times: int) -> None:
    """So many restarts, kills and freezes, in an order that the seed draws."""
    acts = [act for act in (crew.restart, crew.kill, crew.freeze) for _ in range(times)]
    crew.chance.shuffle(acts)
    for act in acts:
        act()
    crew.look_at_last()


def play_static(crew: Crew, times: int) -> None:
    """So many restarts and kills of static members, each of which is back within its session."""
    acts = [act for act in (crew.restart, crew.kill) for _ in range(times)]
    crew.chance.shuffle(acts)
    for act in acts:
        act()
    crew.look_at_last()
