"""
Measure the time until all members of a group are stable again, beside a Kafka broker.

The claim: a pushed notice reaches members before the next heartbeat would. Members behave like clients: they send a
heartbeat every three seconds, and rejoin as soon as they learn of a rebalance. Both coordinators use their defaults
except for the initial delay, which lets all members of a new group join one round; it restarts once, because another
member joins during it. Rota keeps a round of a group with members open for 250 ms, so that many joins become one
generation; the times to rejoin include that.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from typing import NamedTuple, Protocol

from benchmarks.peers import page, rota, servers, wire
from benchmarks.peers.members import Crew
from benchmarks.peers.voice import Voice

STABLE = 100
NEWCOMERS = 5
CROWD = 500
ROUNDS = 5
NEW_GROUPS = 3
# Members per stream of Rota.
SHARED = 4
INITIAL_DELAY_MS = 3_000
STABLE_S = 60
NEWCOMER_GOAL = page.at_most(0.2)
CROWD_GOAL = page.at_most(1.5)
AGAIN_GOAL = page.at_most(3)
# Rota's default of --rebalance-coalesce-ms.
OPEN_S = 0.25


class Engine(Protocol):
    """One of the two coordinators under test."""

    def voices(self, group: str, count: int) -> AbstractAsyncContextManager[Sequence[Voice]]:
        """Connect clients for this many members."""
        ...


class Rota(NamedTuple):
    """Rota's coordinator."""

    address: str

    @asynccontextmanager
    async def voices(self, group: str, count: int) -> AsyncIterator[Sequence[Voice]]:
        connections = [rota.channel(self.address) for _ in range(-(-count // SHARED))]
        streams = [rota.Stream(connection) for connection in connections]
        yield [rota.RotaVoice(streams[number // SHARED], group) for number in range(count)]
        for stream, connection in zip(streams, connections, strict=True):
            stream.close()
            await connection.close()


class Kafka(NamedTuple):
    """A Kafka broker."""

    address: str

    @asynccontextmanager
    async def voices(self, group: str, count: int) -> AsyncIterator[Sequence[Voice]]:
        wires = [await wire.Wire.open(self.address) for _ in range(count)]
        yield [wire.KafkaVoice(each, group, phase=number / count) for number, each in enumerate(wires)]
        for each in wires:
            each.close()


class Times(NamedTuple):
    """Durations of one coordinator, in seconds."""

    newcomers: list[float]
    first_rounds: list[float]
    rounds: list[float]


async def newcomers(engine: Engine) -> list[float]:
    """Return the times until a stable group is stable again after each of several joins."""
    times = []
    async with engine.voices("newcomers", STABLE + NEWCOMERS) as voices:
        crew = Crew()
        crew.send(voices[:STABLE])
        await crew.all_stable(STABLE_S)
        for voice in voices[STABLE:]:
            crew.begin_anew()
            started = time.perf_counter()
            crew.send([voice])
            await crew.all_stable(STABLE_S)
            times.append(time.perf_counter() - started)
        await crew.dismiss()
    return times


async def together(crew: Crew, voices: Sequence[Voice]) -> float:
    """Return the time in which many members join a new group at once, beyond the initial delay."""
    started = time.perf_counter()
    crew.send(voices)
    await crew.all_stable(STABLE_S)
    return time.perf_counter() - started - 2 * INITIAL_DELAY_MS / 1000


async def crowd(engine: Engine) -> tuple[list[float], list[float]]:
    """Return the times of many members that join new groups at once, and that rejoin the last group at once."""
    firsts, times = [], []
    for number in range(NEW_GROUPS):
        async with engine.voices(f"crowd-{number}", CROWD) as voices:
            crew = Crew()
            firsts.append(await together(crew, voices))
            for change in range(ROUNDS if number == NEW_GROUPS - 1 else 0):
                crew.begin_anew()
                started = time.perf_counter()
                crew.change(change)
                await crew.all_stable(STABLE_S)
                times.append(time.perf_counter() - started)
            await crew.dismiss()
    return firsts, times


async def measure(engine: Engine) -> Times:
    """Run all measurements on one coordinator."""
    return Times(await newcomers(engine), *await crowd(engine))


def line(what: str, ours: Sequence[float], theirs: Sequence[float], goal: page.Goal) -> page.Line:
    """Return the line of the medians of both coordinators."""
    mine, other = statistics.median(ours), statistics.median(theirs)
    ratio = mine / other
    return page.Line(what, f"{mine:.2f} s", f"Kafka {other:.2f} s", ratio, page.judged(goal, ratio))


def main() -> None:
    """Run the benchmark and print its table."""
    result = page.Page("joining", f"clients that heartbeat every 3 s; medians of {ROUNDS}")
    with ExitStack() as stack:
        coordinator = stack.enter_context(servers.rota())
        broker = stack.enter_context(servers.kafka(INITIAL_DELAY_MS, partitions=1))
        ours = asyncio.run(measure(Rota(coordinator.address)))
        theirs = asyncio.run(measure(Kafka(broker.address)))
    result.show(
        [
            line(f"one joins {STABLE}, all stable", ours.newcomers, theirs.newcomers, NEWCOMER_GOAL),
            line(
                f"{CROWD} join and sync, beyond the delay", ours.first_rounds, theirs.first_rounds, CROWD_GOAL
            ),
            line(f"{CROWD} join again and sync at once", ours.rounds, theirs.rounds, AGAIN_GOAL),
            line(
                f"the same, beyond the {1000 * OPEN_S:.0f} ms that Rota keeps the round open",
                [each - OPEN_S for each in ours.rounds],
                theirs.rounds,
                AGAIN_GOAL,
            ),
        ]
    )


if __name__ == "__main__":
    main()
