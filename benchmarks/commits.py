"""

Measure rate and latency of commits of ten partitions each, flushed to disk, beside a Kafka broker.
The claim: group commit makes durable commits fast. Every member has one commit in flight, and sends the next one as
soon as it is answered. Kafka answers once all replicas have the commit, here a single one, and does not flush by default; a second
broker flushes each commit (`log.flush.interval.messages=1`), and another line has the cost of a flush on this disk.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import NamedTuple

from google.protobuf.message import Message

from benchmarks.peers import page, rota, servers, teams, wire
from benchmarks.peers.lanes import Lane, drive
from benchmarks.peers.rounds import COUNTED, Rounds, least_disturbed
from benchmarks.peers.servers import Server
from benchmarks.peers.teams import Seat, Size
from benchmarks.peers.voice import check
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.support.workdir import workdir

SIZE = Size(groups=8, members=12, lanes=24, partitions_each=10)
SECONDS = 2.0
# Long enough for all members of a group to join one round.
INITIAL_DELAY_MS = 1_000
FLUSHES = 200
RATE_GOAL = page.at_least(9_000)
SLOWEST_GOAL = page.at_most(15)
UNFLUSHED_GOAL = page.at_least(0.6)
FLUSHED_GOAL = page.at_least(1)
FLUSHED = {"log.flush.interval.messages": "1"}


class Round(NamedTuple):
    """Results of one server in one round; `rate` is in commits a second."""

    rate: float
    p50_ms: float
    p99_ms: float


@lru_cache
def look_at_frame(data: bytes) -> None:
    """Validate a response of Rota; equal responses of a member are decoded once."""
    reply = pb.SessionResponse.FromString(data).commit_offsets
    errors = {partition.error_code for topic in reply.topics for partition in topic.partitions}
    if errors != {pb.NONE}:
        raise RuntimeError(f"instead of a commit's answer came {reply}")


def look_at_answer(data: bytes) -> None:
    """Validate a response of Kafka."""
    for error in wire.commit_errors(data):
        check(error, "a commit")


async def one_round(lanes: Sequence[Lane], look: Callable[[bytes], None]) -> Round:
    """Send commits of all members for one round."""
    tally = await drive(lanes, SECONDS, look)
    return Round(tally.rate, tally.quantile_ms(0.5), tally.quantile_ms(0.99))


async def in_turn(coordinator: Server, brokers: Sequence[Server]) -> Rounds[tuple[Round, Sequence[Round]]]:
    """Measure Rota and each of the brokers alternately."""
    own_team = await teams.on_rota(coordinator.address, SIZE)
    other_teams = [await teams.on_kafka(broker.address, SIZE) for broker in brokers]

    async def each() -> tuple[Round, Sequence[Round]]:
        async with teams.streams(coordinator.address, SIZE, own_team, rota_request) as lanes:
            ours = await one_round(lanes, look_at_frame)
        theirs = []
        for broker, team in zip(brokers, other_teams, strict=True):
            async with teams.wires(broker.address, SIZE, team, kafka_request) as wires:
                theirs.append(await one_round(wires, look_at_answer))
        return ours, theirs

    return await least_disturbed((coordinator, *brokers), each)


def rota_request(seat: Seat) -> dict[str, Message]:
    """Return a member's commit request to Rota."""
    return {"commit_offsets": rota.commit_request(seat.group, seat.joined, seat.partitions)}


def kafka_request(seat: Seat) -> bytes:
    """Return a member's commit request to Kafka."""
    return wire.commit_request(seat.group, seat.joined, seat.partitions)


def median(rounds: Sequence[Round]) -> Round:
    """Return the median of each figure."""
    return Round(*(statistics.median(figures) for figures in zip(*rounds, strict=True)))


def lines(ours: Round, theirs: Round, flushed: Round) -> list[page.Line]:
    """Return the lines of Rota, beside a broker that does not flush and one that does."""
    ratio, flushed_ratio = ours.rate / theirs.rate, ours.rate / flushed.rate
    return [
        page.Line("commits/s", f"{ours.rate:,.0f}", goal=page.judged(RATE_GOAL, ours.rate)),
        page.Line(
            "commits/s, flushed",
            f"{ours.rate:,.0f}",
            f"Kafka {theirs.rate:,.0f}, not flushed",
            ratio,
            page.judged(UNFLUSHED_GOAL, ratio),
        ),
        page.Line(
            "half of them within",
            f"{ours.p50_ms:.1f} ms",
            f"Kafka {theirs.p50_ms:.1f} ms",
            ours.p50_ms / theirs.p50_ms,
        ),
        page.Line(
            "99 of 100 within",
            f"{ours.p99_ms:.1f} ms",
            f"Kafka {theirs.p99_ms:.1f} ms",
            ours.p99_ms / theirs.p99_ms,
            page.judged(SLOWEST_GOAL, ours.p99_ms),
        ),
        page.Line(
            "commits/s, both flushed",
            f"{ours.rate:,.0f}",
            f"Kafka {flushed.rate:,.0f}",
            flushed_ratio,
            page.judged(FLUSHED_GOAL, flushed_ratio),
        ),
    ]


def flush_ms() -> float:
    """Return the median time of flushing one page to the disk of the coordinator's file."""
    with workdir("flush") as folder, (folder / "page").open("wb") as file:
        times = []
        for _ in range(FLUSHES):
            file.write(bytes(4096))
            file.flush()
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000


def main() -> None:
    """Run the benchmark and print its table."""
    result = page.Page(
        "commits",
        f"{SIZE.partitions_each} partitions each, {SIZE.groups * SIZE.members} open at a time on {SIZE.lanes} streams; "
        f"medians of {COUNTED} rounds",
    )
    partitions = SIZE.members * SIZE.partitions_each
    with ExitStack() as stack:
        delay = f"--group-initial-rebalance-delay-ms={INITIAL_DELAY_MS}"
        coordinator = stack.enter_context(servers.rota([delay]))
        brokers = [
            stack.enter_context(servers.kafka(INITIAL_DELAY_MS, partitions, settings))
            for settings in ({}, FLUSHED)
        ]
        others, rounds = asyncio.run(in_turn(coordinator, brokers))
    ours = median([mine for mine, _ in rounds])
    usual, flushed = (median(each) for each in zip(*(theirs for _, theirs in rounds), strict=True))
    result.show(
        [*lines(ours, usual, flushed), page.Line("one flush of the disk", f"{flush_ms():.1f} ms")], others
    )


if __name__ == "__main__":
    main()
