"""Costs at one size of the work, and the servers on which sidecars are measured."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from tests.support.coordinator import Coordinator
from tests.support.kafka import running
from tests.support.workdir import workdir

QUICK = ("--group-initial-rebalance-delay-ms=0", "--rebalance-coalesce-ms=0")
KAFKA = {"group.initial.rebalance.delay.ms": "0"}


class Cost(NamedTuple):
    """Cost of one thing at one size."""

    what: str
    amount: float
    unit: str

    def text(self) -> str:
        """Return the amount with its unit."""
        return f"{self.amount:,.2f} {self.unit}"


class Engine(NamedTuple):
    """A server with topics and groups."""

    name: str
    address: str
    create_topic: Callable[[str, int], None]


@contextmanager
def on_rota() -> Iterator[Engine]:
    """Run Rota's coordinator with its embedded log, without an initial delay."""
    with workdir("growing") as folder:
        coordinator = Coordinator(folder, QUICK)
        coordinator.start()
        try:
            yield Engine("Rota", f"rota://{coordinator.address}", coordinator.make_topic)
        finally:
            coordinator.kill()


@contextmanager
def on_kafka() -> Iterator[Engine]:
    """Run a Kafka broker, without an initial delay."""
    with running(settings=KAFKA) as cluster:
        yield Engine(
            "Kafka",
            cluster.bootstrap,
            lambda name, partitions: cluster.create_topic(name, partitions=partitions),
        )


@contextmanager
def engines() -> Iterator[list[Engine]]:
    """Run both."""
    with ExitStack() as stack:
        yield [stack.enter_context(on_rota()), stack.enter_context(on_kafka())]
