"""

Measure heartbeats per second on Session streams, beside an echo server and a Kafka broker.
The claim: a coordinator in Python adds little to the cost of gRPC in Python. Every member has one heartbeat in flight,
and sends the next one as soon as it is answered. Rota and the echo server alternate. Kafka receives the same load,
pipelined, for orientation only.
"""

import asyncio
import statistics
from contextlib import ExitStack
from typing import NamedTuple

from benchmarks.peers import page, rota, servers, teams, wire
from benchmarks.peers.lanes import drive
from benchmarks.peers.rounds import COUNTED, Rounds, least_disturbed
from benchmarks.peers.servers import Server
from benchmarks.peers.teams import Seat, Size
from benchmarks.peers.voice import check
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

SIZE = Size(groups=10, members=10, lanes=25, partitions_each=1)
SECONDS = 2.0
# Long enough for all members of a group to join one round.
INITIAL_DELAY_MS = 1_000
GOAL = page.at_least(0.9)


class Round(NamedTuple):
    """Results of one server in one round; `rate` is in heartbeats a second."""

    rate: float
    processor_us: float


def look_at_frame(data: bytes) -> None:
    """Validate a response of Rota or of the echo server."""
    frame = pb.SessionResponse.FromString(data)
    if frame.WhichOneof("response") != "heartbeat":
        raise RuntimeError(f"instead of a heartbeat's answer came {frame}")
    check(frame.heartbeat.error_code, "a heartbeat")


def look_at_answer(data: bytes) -> None:
    """Validate a response of Kafka."""
    check(wire.Reader(data).number(">h"), "a heartbeat")


async def on_streams(server: Server, team: list[Seat]) -> Round:
    """Send heartbeats of all members for one round."""
    async with teams.streams(
        server.address,
        SIZE,
        team,
        lambda seat: {"heartbeat": rota.heartbeat_request(seat.group, seat.joined)},
    ) as lanes:
        before = server.processor_s()
        tally = await drive(lanes, SECONDS, look_at_frame)
        return Round(tally.rate, (server.processor_s() - before) / tally.answers * 1e6)


async def in_turn(coordinator: Server, empty: Server) -> Rounds[tuple[Round, Round]]:
    """Measure Rota and the echo server alternately."""
    team = await teams.on_rota(coordinator.address, SIZE)

    async def both() -> tuple[Round, Round]:
        return await on_streams(coordinator, team), await on_streams(empty, team)

    return await least_disturbed((coordinator, empty), both)


async def on_wires(server: Server) -> float:
    """Return the heartbeats per second of a Kafka broker."""
    team = await teams.on_kafka(server.address, SIZE)
    async with teams.wires(
        server.address, SIZE, team, lambda seat: wire.heartbeat_request(seat.group, seat.joined)
    ) as lanes:

        async def one() -> float:
            return (await drive(lanes, SECONDS, look_at_answer)).rate

        return statistics.median((await least_disturbed([server], one)).results)


def main() -> None:
    """Run the benchmark and print its table."""
    result = page.Page(
        "heartbeats",
        f"{SIZE.groups} groups of {SIZE.members} members on {SIZE.lanes} streams; medians of {COUNTED} rounds",
    )
    with ExitStack() as stack:
        delay = f"--group-initial-rebalance-delay-ms={INITIAL_DELAY_MS}"
        coordinator = stack.enter_context(servers.rota([delay]))
        empty = stack.enter_context(servers.empty("echo"))
        others, rounds = asyncio.run(in_turn(coordinator, empty))
    with servers.kafka(INITIAL_DELAY_MS, partitions=SIZE.members) as broker:
        kafka = asyncio.run(on_wires(broker))
    ours = statistics.median(mine.rate for mine, _ in rounds)
    echo = statistics.median(other.rate for _, other in rounds)
    ratio = page.median_ratio((mine.rate, other.rate) for mine, other in rounds)
    cost = statistics.median(mine.processor_us for mine, _ in rounds)
    echo_cost = statistics.median(other.processor_us for _, other in rounds)
    result.show(
        [
            page.Line(
                "heartbeats/s", f"{ours:,.0f}", f"empty echo {echo:,.0f}", ratio, page.judged(GOAL, ratio)
            ),
            page.Line(
                "processor time for each",
                f"{cost:.0f} µs",
                f"empty echo {echo_cost:.0f} µs",
                cost / echo_cost,
            ),
            page.Line("heartbeats/s", f"{ours:,.0f}", f"Kafka {kafka:,.0f}", ours / kafka),
        ],
        others,
    )


if __name__ == "__main__":
    main()
