"""
Measure the time until all members of a group are stable again, beside a Kafka broker.

The claim: a notice that is pushed comes before a heartbeat that asks. Members behave as clients do: they heartbeat
every three seconds, and join again as soon as they know that they must. Both coordinators are set up with their
defaults, but for the initial delay, which lets the members of a first group be in one round: it begins
anew once, because another member joins in it. Rota also keeps a round of a group that has members open for a quarter of a
second, so that many who join are one generation; that is in what it takes for all to join again.
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
# How many members share a stream of Rota's.
SHARED = 4
INITIAL_DELAY_MS = 3_000
STABLE_S = 60
NEWCOMER_GOAL = page.at_most(0.2)
CROWD_GOAL = page.at_most(3)


class Engine(Protocol):
    """One of the two coordinators."""

    def voices(self, group: str, count: int) -> AbstractAsyncContextManager[Sequence[Voice]]:
        """So many members to be, connected."""
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
    """A group of many is stable; one more joins, and another one, and so on."""
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
    """Many join a new group at once; what that takes beyond the delay."""
    started = time.perf_counter()
    crew.send(voices)
    await crew.all_stable(STABLE_S)
    return time.perf_counter() - started - 2 * INITIAL_DELAY_MS / 1000


async def crowd(engine: Engine) -> tuple[list[float], list[float]]:
    """Many join new groups at once; then all of the last one join again at once, and again."""
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
    """All of it, on one coordinator."""
    return Times(await newcomers(engine), *await crowd(engine))


def line(what: str, ours: Sequence[float], theirs: Sequence[float], goal: page.Goal | None) -> page.Line:
    """The medians beside each other."""
    mine, other = statistics.median(ours), statistics.median(theirs)
    ratio = mine / other
    judged = "" if goal is None else page.judged(goal, ratio)
    return page.Line(what, f"{mine:.2f} s", f"Kafka {other:.2f} s", ratio, judged)


def main() -> None:
    """Print the table."""
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
            line(f"{CROWD} join again and sync at once", ours.rounds, theirs.rounds, None),
        ]
    )


if __name__ == "__main__":
    main()
