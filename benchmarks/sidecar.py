"""
Measure a sidecar: the time from the start of its process to its partitions, and its memory when idle.

The claim: a member has its partitions within 1.5 s and uses at most 64 MiB. No coordinator has an initial delay. The
comparison is a consumer process of confluent-kafka in a separate group on the same broker, measured alternately.
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import page, servers
from benchmarks.peers.voice import TOPIC
from tests.support.processes import Process
from tests.support.sidecar import Sidecar
from tests.support.workdir import workdir

ROUNDS = 9
PARTITIONS = 6
IDLE_S = 2
WITHIN_S = 20
START_GOAL = page.at_most(0.35)
MEMORY_GOAL = page.at_most(64)
QUICK = ("--group-initial-rebalance-delay-ms=0", "--rebalance-coalesce-ms=0")
CONSUMER = """
import sys, time
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2]})
consumer.subscribe([sys.argv[3]], on_assign=lambda *_: print(time.monotonic(), flush=True))
while True:
    consumer.poll(0.1)
"""


class Cost(NamedTuple):
    """Start-up time and memory of one process."""

    seconds: float
    mebibytes: float
    # The part of the seconds until all modules are loaded.
    loading_s: float = 0


def memory(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def sidecar(folder: Path, servers: str, name: str) -> Cost:
    """Measure a sidecar process: start it, wait for its partitions, let it idle, and stop it."""
    member = Sidecar(folder, servers, name, [f"--topics={TOPIC}"], name=name)
    started = time.monotonic()
    member.start("--session-timeout-ms=45000", "--heartbeat-interval-ms=3000", "--topics-refresh-ms=30000")
    assigned = member.wait("assigned", within_s=WITHIN_S)
    time.sleep(IDLE_S)
    began_s = member.events[0]["monotonic_ms"] / 1000
    cost = Cost(assigned["monotonic_ms"] / 1000 - started, memory(member.pid), began_s - started)
    member.terminate()
    member.stop()
    return cost


def consumer(folder: Path, bootstrap: str, name: str) -> Cost:
    """Measure a consumer process, in a separate group because it does not leave the group."""
    log = folder / f"{name}.log"
    started = time.monotonic()
    process = Process.start(name, [sys.executable, "-c", CONSUMER, bootstrap, name, TOPIC], log=log)
    process.wait_until(lambda: log.read_text().endswith("\n"), within_s=WITHIN_S)
    time.sleep(IDLE_S)
    cost = Cost(float(log.read_text().split()[0]) - started, memory(process.pid))
    process.kill()
    return cost


def measured(one: Callable[[str], Cost], other: Callable[[str], Cost]) -> list[tuple[Cost, Cost]]:
    """Measure both alternately; the first round only fills the caches."""
    return [(one(f"ours-{number}"), other(f"theirs-{number}")) for number in range(ROUNDS + 1)][1:]


def lines(engine: str, pairs: list[tuple[Cost, Cost]]) -> list[page.Line]:
    """Return the lines of the medians of both."""
    seconds, theirs_s = (statistics.median(pair[side].seconds for pair in pairs) for side in (0, 1))
    mebibytes, theirs_mb = (statistics.median(pair[side].mebibytes for pair in pairs) for side in (0, 1))
    loading_s = statistics.median(ours.loading_s for ours, _ in pairs)
    return [
        page.Line(
            f"start to partitions, {engine}",
            f"{seconds:.2f} s",
            f"confluent-kafka {theirs_s:.2f} s",
            page.median_ratio((ours.seconds, theirs.seconds) for ours, theirs in pairs),
            page.judged(START_GOAL, seconds),
        ),
        page.Line(f"of that, until all is loaded, {engine}", f"{loading_s:.2f} s"),
        page.Line(
            f"memory when idle, {engine}",
            f"{mebibytes:.0f} MiB",
            f"confluent-kafka {theirs_mb:.0f} MiB",
            page.median_ratio((ours.mebibytes, theirs.mebibytes) for ours, theirs in pairs),
            page.judged(MEMORY_GOAL, mebibytes),
        ),
    ]


def main() -> None:
    """Run the benchmark and print its table."""
    result = page.Page("sidecar", f"one member, {PARTITIONS} partitions; medians of {ROUNDS}")
    with (
        workdir("sidecar-benchmark") as folder,
        servers.rota(QUICK, partitions=PARTITIONS) as coordinator,
        servers.kafka(0, PARTITIONS) as broker,
    ):
        rota = f"rota://{coordinator.address}"
        on_rota = measured(
            lambda name: sidecar(folder, rota, f"rota-{name}"),
            lambda name: consumer(folder, broker.address, f"rota-{name}"),
        )
        on_kafka = measured(
            lambda name: sidecar(folder, broker.address, f"kafka-{name}"),
            lambda name: consumer(folder, broker.address, f"kafka-{name}"),
        )
        result.show([*lines("on Rota", on_rota), *lines("on Kafka", on_kafka)])


if __name__ == "__main__":
    main()
