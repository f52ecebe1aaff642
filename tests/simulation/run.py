"""One seed from start to end: warm up, break things, heal everything, look whether it converges, check what is written."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.crew import KILLED_LATER_S, TERMINATION_S, Crew, Nemesis, Stranger
from tests.simulation.invariants import Violation
from tests.simulation.loop import VirtualLoop, run
from tests.simulation.member import HEARTBEAT_MS, JOIN_S, REBALANCE_MS, TOPICS_REFRESH_S
from tests.simulation.plan import LATE_S, SESSION_S, DeliveryPlan, Plan
from tests.simulation.producers import RATE as PRODUCERS_RATE
from tests.simulation.producers import Producers
from tests.simulation.world import World

STEPS = 5_000
# Session, rebalance, and twice the longest that a client waits before it tries again.
HEALS_WITHIN_S = SESSION_S + 2 * JOIN_S + 10
LOOK_EVERY_S = 0.5
# As many as a coordinator needs of its store before it serves, about.
READINGS = 8
RESUMES_WITHIN_S = 2.0
# For one change: a cooperative group gives up in the first round, gives away in the second, and one was under way.
ROUNDS_MAX = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """Statistics of a run; it only exists when no invariant was violated."""

    steps: int
    virtual_s: float
    met: "Counter[str]"
    trace: str


def simulate(seed: int, steps: int = STEPS, *, delivers: bool = False) -> Outcome:
    """
    Run a seed; with `delivers` members have the shipping delivery core and its ledgers, and applications with hands.

    Raises Violation; how to run it again is its last line.
    """
    chance = random.Random(seed)
    loop = VirtualLoop()
    plan = Plan.draw(chance, steps)
    world = World(loop, plan, chance, DeliveryPlan.draw(random.Random(-seed)) if delivers else None)
    try:
        run(loop, _run(world, random.Random(f"producers of {seed}")))
    except Exception as broken:
        broken.add_note(
            f"again: .venv/bin/python -m tests.simulation {seed}{' --deliver' if delivers else ''}"
        )
        raise
    return Outcome(world.steps, loop.now_s, world.fired + world.situations.met, world.trace)


async def _run(world: World, producing: random.Random) -> None:
    plan = world.plan
    for host in world.hosts:
        host.start()
    crew = Crew(world)
    for number in range(plan.members):
        crew.start(number)
    if plan.strangers:
        Stranger(world, crew).start()
    # Drawn from chance of their own, so that seeds without producers keep their course.
    if producing.random() < PRODUCERS_RATE and world.deliveries is None:
        Producers(world, producing).start()
    nemesis = Nemesis(world, crew)
    while world.steps < plan.steps:
        await asyncio.sleep(world.chance.expovariate(1 / plan.calm_s))
        nemesis.act()
    await heal(world, crew)
    await converge(world, crew)
    await stay_whole(world)
    await outlive_the_coordinator(world)
    await lose_members(world, crew)
    await grow(world, crew)
    await end(world, crew)


async def heal(world: World, crew: Crew) -> None:
    """End all faults, start all processes, and deliver all pending messages."""
    world.heal()
    crew.wake()
    start_all(world, crew)
    # What comes late, and the round that it comes into; and those who were told to go.
    await asyncio.sleep(max(LATE_S + world.plan.coalesce_ms / 1000, TERMINATION_S + KILLED_LATER_S))
    # Who learned only now that a second process had taken its place, or whose instance another process had; that one is gone.
    start_all(world, crew)


def start_all(world: World, crew: Crew) -> None:
    """As many as their group has room for."""
    plan = world.plan
    for number in range(plan.members):
        if number // len(plan.groups) < plan.members_max:
            crew.start(number)
        else:
            crew.kill(number)


async def converge(world: World, crew: Crew) -> None:
    """L1 and L5: after healing every partition has one owner, all members are in one generation; commits rise."""
    deadline_s = world.loop.now_s + HEALS_WITHIN_S
    broken = Violation("L1", f"not whole {HEALS_WITHIN_S:.0f} s after everything was healed")
    while True:
        if is_whole(world, crew):
            if await commits_rise(world):
                return
            broken = Violation(
                "L5", f"whole, and not all is committed {HEALS_WITHIN_S:.0f} s after the healing"
            )
        if world.loop.now_s > deadline_s:
            raise broken
        await asyncio.sleep(LOOK_EVERY_S)


def is_whole(world: World, crew: Crew) -> bool:
    """Return whether each group is stable in one generation, and its members own all partitions, each once."""
    for group_id, history in world.histories.items():
        members = [member for member in crew.members.values() if member.group_id == group_id]
        owned = sorted(partition for member in members for partition in member.owned)
        # One that was killed may still be counted, without a partition.
        counted = history.members == {member.member_id for member in members}
        stable = all(member.stable for member in members)
        generations = {member.generation for member in members}
        whole = counted and stable and generations == {history.group.generation_id}
        if not whole or owned != list(range(world.partitions)):
            return False
        check_shares(group_id, [len(member.owned) for member in members])
    return world.leases.are_equal() or len(world.hosts) == 1


def check_shares(group_id: str, sizes: Sequence[int]) -> None:
    """L4: numbers of partitions of two members differ by one at most."""
    if max(sizes) - min(sizes) > 1:
        raise Violation("L4", f"members of {group_id} have {sizes} partitions")


async def commits_rise(world: World) -> bool:
    """Return whether each partition is committed again within a few heartbeats."""
    before = [Counter(history.acknowledgements) for history in world.histories.values()]
    await asyncio.sleep(8 * LOOK_EVERY_S)
    return all(
        history.acknowledgements[partition] > old[partition]
        for history, old in zip(world.histories.values(), before, strict=True)
        for partition in range(world.partitions)
    )


async def stay_whole(world: World) -> None:
    """L3: where nothing happens there is no new generation."""
    before = [history.reserved for history in world.histories.values()]
    await asyncio.sleep(3 * SESSION_S)
    if [history.reserved for history in world.histories.values()] != before:
        raise Violation("L3", "a new generation, and nothing had happened")


async def outlive_the_coordinator(world: World) -> None:
    """
    L2: a coordinator that crashes and is back within half a session starts no round, and is found again at once.

    Back means that it serves: what a slow store takes to be read is part of the time.
    """
    if len(world.hosts) > 1:
        return  # with several, another one takes over when the lease has ended
    before = [history.reserved for history in world.histories.values()]
    world.hosts[0].crash_for(world.chance.uniform(0, SESSION_S / 2 - READINGS * world.plan.latency_s))
    deadline_s = world.loop.now_s + SESSION_S / 2 + RESUMES_WITHIN_S
    while not await commits_rise(world):
        if world.loop.now_s > deadline_s:
            raise Violation(
                "L2", f"nothing is committed {RESUMES_WITHIN_S} s after the coordinator came back"
            )
    await asyncio.sleep(2 * SESSION_S)
    if [history.reserved for history in world.histories.values()] != before:
        raise Violation("L2", "a coordinator that was back within half a session has started a round")


async def lose_members(world: World, crew: Crew) -> None:
    """L2 and L3: one that leaves is replaced at once, one that dies when its session is over; each in few rounds."""
    plan, round_s = world.plan, round_seconds(world)
    if len(crew.members) > len(plan.groups):
        crew.leave(min(crew.members))
        await replaced(world, crew, 1 + round_s)
    if len(crew.members) > len(plan.groups):
        crew.kill(min(crew.members))
        await replaced(world, crew, SESSION_S + HEARTBEAT_MS / 1000 + 1 + round_s)
        # Somebody comes, somebody else has to give up for that, and restarts just then: one more member is gone.
        world.on_revoke = lambda member: world.loop.outside(0.001, crew.restart, member)
        crew.start(min(set(range(plan.members)) - crew.members.keys()))
        await replaced(world, crew, SESSION_S + HEARTBEAT_MS / 1000 + 1 + 2 * round_s, 2 * ROUNDS_MAX)
        world.on_revoke = None


def round_seconds(world: World) -> float:
    """Return the minimal duration of a round in seconds: its window, and its write."""
    return 2 * world.plan.coalesce_ms / 1000 + 10 * world.plan.latency_s


async def grow(world: World, crew: Crew) -> None:
    """L7 and L3: a partition that is added gets an owner, also while the leader is away; each in few rounds."""
    world.grow()
    for member in crew.members.values():
        member.watch_topics()
    within_s = TOPICS_REFRESH_S + 1 + round_seconds(world)
    await whole(
        world,
        crew,
        within_s,
        Violation("L7", f"a partition that was added has no owner after {within_s:.1f} s"),
    )
    leaders = crew.kill_leaders()
    world.grow()
    for number in leaders:
        crew.start(number)
    # A dynamic leader whose folder is lost is missed when its session is over.
    within_s += SESSION_S + HEARTBEAT_MS / 1000 + round_seconds(world)
    away = Violation(
        "L7", f"a partition that was added while the leader was away has no owner after {within_s:.1f} s"
    )
    await whole(world, crew, within_s, away, 2 * ROUNDS_MAX)


async def replaced(world: World, crew: Crew, within_s: float, rounds_max: int = ROUNDS_MAX) -> None:
    """The others have everything within this time, and few rounds."""
    broken = Violation("L2", f"partitions of one who is gone have no owner after {within_s:.1f} s")
    await whole(world, crew, within_s, broken, rounds_max)


async def whole(
    world: World, crew: Crew, within_s: float, broken: Violation, rounds_max: int = ROUNDS_MAX
) -> None:
    """Everything has an owner within this time, and few rounds; else that is broken."""
    before = [history.reserved[1] for history in world.histories.values()]
    began_s = world.loop.now_s
    while not is_whole(world, crew):
        if world.loop.now_s > began_s + within_s:
            raise broken
        await asyncio.sleep(LOOK_EVERY_S / 10)
    for history, generation in zip(world.histories.values(), before, strict=True):
        if history.reserved[1] > generation + rounds_max:
            raise Violation("L3", f"{history.reserved[1] - generation} rounds for one change")
    await asyncio.sleep(SESSION_S)


async def end(world: World, crew: Crew) -> None:
    """L6 and S6: all members end, all that they asked is answered, and all that was answered is written."""
    crew.stop()
    await asyncio.sleep(SESSION_S + 2 * REBALANCE_MS / 1000)
    for host in world.hosts:
        if host.running.unanswered:
            raise Violation("L6", f"{len(host.running.unanswered)} requests were never answered")
    world.check_log()
