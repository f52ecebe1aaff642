"""
Measure the restart of a coordinator with a long log, beside a Kafka broker.

The claim: a million commits of a thousand groups are loaded within seconds. Rota's log is written through its store,
Kafka's by commit requests, and both servers are shut down cleanly before. The start of an empty coordinator is measured
too, because it is not part of loading.
"""

import asyncio
import shutil
import statistics
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import page, wire
from benchmarks.peers.members import NOT_YET
from benchmarks.peers.voice import TOPIC, Joined, check
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.coordinator import large_log
from tests.support.coordinator import Coordinator
from tests.support.kafka import Kafka, running
from tests.support.processes import processor_s
from tests.support.workdir import workdir

ROUNDS = 3
CONNECTIONS = 20
POLL_S = 0.02
SERVES_S = 120
GOAL = page.at_most(5)
# Identity of a commit from outside a group: no generation and no member id.
NOBODY = Joined(pb.NONE, -1, "", "", ())


class Start(NamedTuple):
    """Durations from the start of a process until it serves, in seconds."""

    seconds: float
    processor_s: float


def start_rota(coordinator: Coordinator) -> Start:
    """Start a coordinator, measure until it serves, and stop it."""
    began = time.perf_counter()
    coordinator.start()
    start = Start(time.perf_counter() - began, processor_s(coordinator.pid))
    coordinator.stop()
    return start


async def fill(address: str) -> None:
    """Send a broker as many commits as Rota's log contains."""
    wires = [await wire.Wire.open(address) for _ in range(CONNECTIONS)]
    await serves(wires[0])
    await asyncio.gather(
        *(commit(each, large_log.group_ids()[number::CONNECTIONS]) for number, each in enumerate(wires))
    )
    for each in wires:
        each.close()


async def commit(connection: wire.Wire, group_ids: list[str]) -> None:
    """Send all commits of some groups in pipelined waves; responses arrive in the order of requests."""
    requests = [wire.commit_request(group_id, NOBODY, range(large_log.PARTITIONS)) for group_id in group_ids]
    for _ in range(large_log.WAVES):
        for answer in await asyncio.gather(*(connection.ask(request) for request in requests)):
            for error in wire.commit_errors(answer):
                check(error, "a commit")


async def serves(connection: wire.Wire) -> None:
    """Wait until a broker coordinates every group."""
    async with asyncio.timeout(SERVES_S):
        for group_id in large_log.group_ids():
            await connection.ask(wire.find_request(group_id))
            while wire.fetch_error(await connection.ask(wire.fetch_request(group_id))) in NOT_YET:
                await asyncio.sleep(POLL_S)


async def all_served(address: str) -> None:
    """Wait on a new connection until a broker coordinates every group."""
    connection = await wire.Wire.open(address)
    await serves(connection)
    connection.close()


def start_kafka(cluster: Kafka) -> float:
    """Start a broker, and return the seconds until it coordinates all groups."""
    broker = cluster.broker(1)
    broker.stop()
    started = time.perf_counter()
    broker.start()
    asyncio.run(all_served(cluster.bootstrap))
    return time.perf_counter() - started


def round_of_rota(template: Path) -> tuple[Start, Start]:
    """Measure a start on a copy of the long log, because loading compacts a log, and one on an empty file."""
    with workdir("full") as full, workdir("empty") as empty:
        shutil.copy(template, full / "coordinator.db")
        other = Coordinator(empty, ())
        start_rota(other)  # creates its file
        return start_rota(Coordinator(full, ())), start_rota(other)


def main() -> None:
    """Run the benchmark and print its table."""
    result = page.Page(
        "loading", f"{large_log.COMMITS:,} commits of {large_log.GROUPS:,} groups; medians of {ROUNDS}"
    )
    with workdir("template") as folder:
        asyncio.run(large_log.write(folder / "coordinator.db"))
        rounds = [round_of_rota(folder / "coordinator.db") for _ in range(ROUNDS)]
    with running() as cluster:
        cluster.create_topic(TOPIC, partitions=large_log.PARTITIONS)
        asyncio.run(fill(cluster.bootstrap))
        kafka_s = statistics.median([start_kafka(cluster) for _ in range(ROUNDS)])
    started_s = statistics.median(full.seconds for full, _ in rounds)
    loading_s = statistics.median(full.seconds - empty.seconds for full, empty in rounds)
    processor = statistics.median(full.processor_s - empty.processor_s for full, empty in rounds)
    result.show(
        [
            page.Line("loading", f"{loading_s:.2f} s", goal=page.judged(GOAL, loading_s)),
            page.Line("processor time of it", f"{processor:.2f} s"),
            page.Line(
                "from its start until it serves",
                f"{started_s:.2f} s",
                f"Kafka {kafka_s:.2f} s",
                started_s / kafka_s,
            ),
        ]
    )


if __name__ == "__main__":
    main()
