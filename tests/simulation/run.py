"""One seed from start to end: warm up, break things, heal everything, look whether it converges, check what is written."""

import asyncio
import random
from dataclasses import dataclass

from tests.simulation import loop
from tests.simulation.history import History, Violation
from tests.simulation.member import JOIN_S, SESSION_MS, SimulatedMember
from tests.simulation.world import Plan, World

STEPS = 5_000
# Session, rebalance, and twice the longest that a client waits before it tries again.
HEALS_WITHIN_S = SESSION_MS / 1000 + 2 * JOIN_S + 10
LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run was like; it only exists when no invariant was broken."""

    steps: int
    virtual_s: float
    fired: dict[str, int]
    history: History
    trace: str


def simulate(seed: int, steps: int = STEPS) -> Outcome:
    """Run a seed. Raises Violation; the seed and the plan are its last line."""
    chance = random.Random(seed)
    try:
        return loop.run(_run(seed, Plan.draw(chance, steps), chance))
    except AssertionError as broken:
        broken.add_note(f"again: .venv/bin/python -m tests.simulation {seed}")
        raise


async def _run(seed: int, plan: Plan, chance: random.Random) -> Outcome:
    world = World(seed, plan, chance)
    await world.host.start()
    crew = Crew(world)
    for number in range(plan.members):
        crew.start(number)
    while world.steps < plan.steps:
        await asyncio.sleep(chance.expovariate(1 / plan.calm_s))
        crew.raise_failures()
        await disturb(world, crew)
    await heal(world, crew)
    await crew.converge()
    await stay_whole(world)
    if len(crew.members) > 1:
        crew.kill(min(crew.members))
        await crew.converge()
    await crew.stop()
    world.history.check_end(world.written)
    world.host.check_replay()
    now_s = asyncio.get_running_loop().time()
    trace = repr((world.steps, now_s, len(world.written), sorted(world.fired.items())))
    return Outcome(world.steps, now_s, dict(world.fired), world.history, trace)


class Crew:
    """The members that are alive."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.members: dict[int, tuple[SimulatedMember, asyncio.Task[None]]] = {}

    def start(self, number: int) -> None:
        """A new process with this number; a static one takes its instance's place."""
        member = SimulatedMember(self.world, number)
        self.members[number] = (member, asyncio.ensure_future(member.live()))

    def kill(self, number: int) -> None:
        """SIGKILL: nobody is told."""
        member, task = self.members.pop(number)
        member.connection.close()
        task.cancel()

    async def leave(self, number: int) -> None:
        """A clean stop."""
        member, task = self.members.pop(number)
        task.cancel()
        try:
            await member.leave()
        except (ConnectionError, TimeoutError):
            self.world.fired["leave got lost"] += 1

    async def stop(self) -> None:
        """All members stop, and what they had sent arrives or does not."""
        for number in list(self.members):
            self.kill(number)
        await asyncio.sleep(10 * self.world.plan.disk_latency_s)

    def raise_failures(self) -> None:
        """A member that ended found something wrong."""
        for _, task in self.members.values():
            if task.done():
                task.result()

    async def converge(self) -> None:
        """L1: after healing every partition has one owner, everybody is in the same generation, commits rise."""
        deadline_s = asyncio.get_running_loop().time() + HEALS_WITHIN_S
        while True:
            self.raise_failures()
            if self.is_whole():
                before = dict(self.world.history.acknowledged)
                await asyncio.sleep(4 * LOOK_EVERY_S)
                after = self.world.history.acknowledged
                if all(after[partition] > before.get(partition, -1) for partition in after):
                    return
            if asyncio.get_running_loop().time() > deadline_s:
                raise Violation(f"L1: not whole {HEALS_WITHIN_S:.0f} s after everything was healed")
            await asyncio.sleep(LOOK_EVERY_S)

    def is_whole(self) -> bool:
        """Everybody is stable in one generation, and together they own all partitions, once."""
        members = [member for member, _ in self.members.values()]
        owned = sorted(partition for member in members for partition in member.owned)
        generations = {member.generation for member in members}
        return (
            # One that was killed may still be counted, without a partition.
            self.world.host.size() == len(members)
            and all(member.stable for member in members)
            and len(generations) == 1
            and owned == list(range(self.world.plan.partitions))
        )


async def disturb(world: World, crew: Crew) -> None:
    """One act of the nemesis."""
    chance = world.chance
    number = chance.randrange(world.plan.members)
    match chance.choice(["crash", "pause", "pause", "kill", "leave", "start", "start"]):
        case "crash":
            world.host.crash()
            await asyncio.sleep(chance.uniform(0, 2 * SESSION_MS / 1000))
            await world.host.start()
        case "pause" if number in crew.members:
            world.fired["pause"] += 1
            now_s = asyncio.get_running_loop().time()
            # Long enough, at times, for others to take over and to have gone on when it wakes.
            crew.members[number][0].paused_until_s = now_s + chance.uniform(0, 5 * SESSION_MS / 1000)
        case "kill" if number in crew.members:
            world.fired["kill"] += 1
            crew.kill(number)
        case "leave" if number in crew.members:
            world.fired["leave"] += 1
            await crew.leave(number)
        case "start" if number not in crew.members:
            crew.start(number)


async def stay_whole(world: World) -> None:
    """L3: where nothing happens there is no new generation."""
    newest = max(world.history.leaders)
    await asyncio.sleep(3 * SESSION_MS / 1000)
    if max(world.history.leaders) != newest:
        raise Violation("L3: a new generation, and nothing had happened")


async def heal(world: World, crew: Crew) -> None:
    """No more faults, and everybody is there."""
    world.calm = True
    world.host.disk.error_rate = 0
    for number in range(world.plan.members):
        if number not in crew.members:
            crew.start(number)
        crew.members[number][0].paused_until_s = 0
