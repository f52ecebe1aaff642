"""One seed from start to end: warm up, break things, heal everything, look whether it converges, check what is written."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass

from tests.simulation.crew import Crew, Nemesis, Stranger
from tests.simulation.invariants import Violation
from tests.simulation.loop import VirtualLoop, run
from tests.simulation.member import JOIN_S, REBALANCE_MS
from tests.simulation.plan import LATE_S, SESSION_S, Plan
from tests.simulation.world import World

STEPS = 5_000
# Session, rebalance, and twice the longest that a client waits before it tries again.
HEALS_WITHIN_S = SESSION_S + 2 * JOIN_S + 10
LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run was like; it only exists when no invariant was broken."""

    steps: int
    virtual_s: float
    met: "Counter[str]"
    trace: str


def simulate(seed: int, steps: int = STEPS) -> Outcome:
    """Run a seed. Raises Violation; how to run it again is its last line."""
    chance = random.Random(seed)
    loop = VirtualLoop()
    world = World(loop, Plan.draw(chance, steps), chance)
    try:
        run(loop, _run(world))
    except Exception as broken:
        broken.add_note(f"again: .venv/bin/python -m tests.simulation {seed}")
        raise
    return Outcome(world.steps, loop.now_s, world.fired + world.situations.met, world.trace)


async def _run(world: World) -> None:
    plan = world.plan
    for host in world.hosts:
        host.start()
    crew = Crew(world)
    for number in range(plan.members):
        crew.start(number)
    if plan.strangers:
        Stranger(world, crew).start()
    nemesis = Nemesis(world, crew)
    while world.steps < plan.steps:
        await asyncio.sleep(world.chance.expovariate(1 / plan.calm_s))
        nemesis.act()
    await heal(world, crew)
    await converge(world, crew)
    await stay_whole(world)
    if len(crew.members) > len(plan.groups):
        crew.kill(min(crew.members))
        await converge(world, crew)
    await end(world, crew)


async def heal(world: World, crew: Crew) -> None:
    """No more faults, everybody is there, and what was under way has come."""
    world.heal()
    crew.wake()
    plan = world.plan
    for number in range(plan.members):
        if number // len(plan.groups) < plan.members_max:
            crew.start(number)
        else:
            crew.kill(number)
    await asyncio.sleep(LATE_S)


async def converge(world: World, crew: Crew) -> None:
    """L1: after healing every partition has one owner, everybody is in the same generation, commits rise."""
    deadline_s = world.loop.now_s + HEALS_WITHIN_S
    while not is_whole(world, crew) or not await commits_rise(world):
        if world.loop.now_s > deadline_s:
            raise Violation("L1", f"not whole {HEALS_WITHIN_S:.0f} s after everything was healed")
        await asyncio.sleep(LOOK_EVERY_S)


def is_whole(world: World, crew: Crew) -> bool:
    """In each group everybody is stable in one generation, and together they own all partitions, once."""
    for group_id, history in world.histories.items():
        members = [member for member in crew.members.values() if member.group_id == group_id]
        owned = sorted(partition for member in members for partition in member.owned)
        # One that was killed may still be counted, without a partition.
        counted = history.members == {member.member_id for member in members}
        stable = all(member.stable for member in members)
        generations = {member.generation for member in members}
        whole = counted and stable and generations == {history.group.generation_id}
        if not whole or owned != list(range(world.plan.partitions)):
            return False
    return world.leases.are_equal() or len(world.hosts) == 1


async def commits_rise(world: World) -> bool:
    """Whether each partition is committed anew within a few heartbeats."""
    before = [Counter(history.acknowledgements) for history in world.histories.values()]
    await asyncio.sleep(8 * LOOK_EVERY_S)
    return all(
        history.acknowledgements[partition] > old[partition]
        for history, old in zip(world.histories.values(), before, strict=True)
        for partition in range(world.plan.partitions)
    )


async def stay_whole(world: World) -> None:
    """L3: where nothing happens there is no new generation."""
    before = [history.reserved for history in world.histories.values()]
    await asyncio.sleep(3 * SESSION_S)
    if [history.reserved for history in world.histories.values()] != before:
        raise Violation("L3", "a new generation, and nothing had happened")


async def end(world: World, crew: Crew) -> None:
    """L6 and S6: all members end, all that they asked is answered, and all that was answered is written."""
    crew.stop()
    await asyncio.sleep(SESSION_S + 2 * REBALANCE_MS / 1000)
    for host in world.hosts:
        if host.running.unanswered:
            raise Violation("L6", f"{len(host.running.unanswered)} requests were never answered")
    world.check_log()
