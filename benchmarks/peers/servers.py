"""Start the measured servers as separate processes, and read their CPU time."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from benchmarks.peers.voice import TOPIC
from tests.support.coordinator import Coordinator
from tests.support.kafka import running
from tests.support.processes import Process, processor_s
from tests.support.workdir import workdir

READY = re.compile(r"listening on (\S+)")
START_S = 30


class Server(NamedTuple):
    """A running server."""

    address: str
    pid: int

    def processor_s(self) -> float:
        """Return the CPU seconds of all its threads."""
        return processor_s(self.pid)


@contextmanager
def rota(
    flags: Sequence[str] = (), *, partitions: int = 6, program: str = "rota_coordinator"
) -> Iterator[Server]:
    """Run Rota's coordinator with default settings on a new file."""
    with workdir("coordinator") as folder:
        coordinator = Coordinator(folder, flags, program=program)
        coordinator.start()
        coordinator.make_topic(TOPIC, partitions)
        try:
            yield Server(coordinator.address, coordinator.pid)
        finally:
            coordinator.kill()


@contextmanager
def empty(name: str) -> Iterator[Server]:
    """Run a server of `benchmarks.peers` that does nothing with what it reads: `echo`, or `fleet`."""
    with workdir(name) as folder:
        log = folder / f"{name}.log"
        process = Process.start(name, [sys.executable, "-m", f"benchmarks.peers.{name}"], log=log)
        try:
            process.wait_until(lambda: READY.search(log.read_text()) is not None, within_s=START_S)
            found = READY.search(log.read_text())
            assert found is not None
            yield Server(found.group(1), process.pid)
        finally:
            process.kill()


@contextmanager
def kafka(
    initial_delay_ms: int, partitions: int, settings: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Run one Kafka broker with a topic; commits are acknowledged by all replicas, of which there is one."""
    own = {"group.initial.rebalance.delay.ms": str(initial_delay_ms), **(settings or {})}
    with running(settings=own) as cluster:
        cluster.create_topic(TOPIC, partitions=partitions)
        yield Server(cluster.bootstrap, cluster.broker(1).pid)
