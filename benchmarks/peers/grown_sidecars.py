"""Measure what many partitions, many topics and large records cost a sidecar, beside an application that only counts records."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import rota
from benchmarks.peers.growing import Cost, Engine
from benchmarks.sidecar import memory
from tests.support.processes import processor_s
from tests.support.sidecar import Deliverer
from tests.support.workdir import workdir

VALUE = b"v" * 100
MANY = 5_000
SIZED_PARTITIONS = 6
WITHIN_S = 300
POLL_MS = 100
# Those of a sidecar by default, not those of tests.
DEFAULTS = ("--session-timeout-ms=45000", "--heartbeat-interval-ms=3000", "--topics-refresh-ms=30000")


class Load(NamedTuple):
    """Amounts that are measured at each size."""

    records: int
    # Of all records together, where records grow.
    bytes: int
    idle_s: float


class Running(NamedTuple):
    """A sidecar that has its partitions, and the consumer of its application."""

    pid: int
    consumer: rota.Consumer
    # From the start of the process until the application sees all partitions.
    started_s: float


@contextmanager
def sidecar(engine: Engine, group: str, partitions: int, flag: str) -> Iterator[Running]:
    """Run a sidecar until it has its partitions."""
    with workdir(group) as folder:
        beside = Deliverer(folder, engine.address, group, [flag, *DEFAULTS])
        began = time.perf_counter()
        beside.start()
        try:
            with rota.Consumer(sidecar=beside.address, max_poll_records=MANY) as consumer:
                while len(consumer.assignment()) < partitions:
                    check_time(began, f"{group} has {len(consumer.assignment())} of {partitions} partitions")
                    consumer.poll(POLL_MS)
                yield Running(beside.process.pid, consumer, time.perf_counter() - began)
            beside.terminate()
        finally:
            beside.close()


def check_time(began: float, what: str) -> None:
    """Raise TimeoutError, because an unfinished benchmark shows nothing."""
    if time.perf_counter() - began > WITHIN_S:
        raise TimeoutError(f"after {WITHIN_S} s {what}")


def send(engine: Engine, topic: str, values: Sequence[bytes], partitions: int) -> None:
    """Send records to the partitions in turn."""
    with rota.Producer(engine.address, acks=1, enable_idempotence=False) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % partitions)
        producer.flush()


def receive(consumer: rota.Consumer, count: int) -> float:
    """Poll until all records have arrived; return the seconds from the first one on."""
    found, began, first = 0, time.perf_counter(), 0.0
    while found < count:
        check_time(began, f"{found:,} of {count:,} records have arrived")
        for batch in consumer.poll_batches(1_000):
            first = first or time.perf_counter()
            found += len(batch)
    return time.perf_counter() - first


def idle(pid: int, seconds: float) -> float:
    """Return the processor time of a process while nothing is sent."""
    before_s = processor_s(pid)
    time.sleep(seconds)
    return processor_s(pid) - before_s


def partitions(engine: Engine, load: Load, count: int) -> list[Cost]:
    """Measure a sidecar with so many partitions of one topic, over which the same number of records is spread."""
    topic = f"partitions-{count}"
    engine.create_topic(topic, count)
    with sidecar(engine, topic, count, f"--topics={topic}") as running:
        resting_s = idle(running.pid, load.idle_s)
        before_s = processor_s(running.pid)
        send(engine, topic, [VALUE] * load.records, count)
        receive(running.consumer, load.records)
        used_s = processor_s(running.pid) - before_s
        mebibytes = memory(running.pid)
    return [
        Cost(f"from its start to its partitions, on {engine.name}", running.started_s, "s"),
        Cost(f"processor time of {load.records:,} records, on {engine.name}", used_s, "s"),
        Cost(f"processor time of {load.idle_s:g} s without records, on {engine.name}", resting_s, "s"),
        Cost(f"memory, on {engine.name}", mebibytes, "MiB"),
    ]


def topics(engine: Engine, load: Load, count: int) -> list[Cost]:
    """Measure a sidecar that finds so many topics of one partition by a pattern."""
    group = f"topics-{count}"
    for number in range(count):
        engine.create_topic(f"{group}-{number}", 1)
    with sidecar(engine, group, count, f"--topic-pattern={group}-.*") as running:
        starting_s = processor_s(running.pid)
        resting_s = idle(running.pid, load.idle_s)
        mebibytes = memory(running.pid)
    return [
        Cost(f"from its start to its partitions, on {engine.name}", running.started_s, "s"),
        Cost(f"processor time until then, on {engine.name}", starting_s, "s"),
        Cost(f"processor time of {load.idle_s:g} s without records, on {engine.name}", resting_s, "s"),
        Cost(f"memory, on {engine.name}", mebibytes, "MiB"),
    ]


def sizes(engine: Engine, load: Load, size: int) -> list[Cost]:
    """Measure a sidecar that delivers the same number of bytes in records of this size."""
    topic, count = f"sizes-{size}", load.bytes // size
    engine.create_topic(topic, SIZED_PARTITIONS)
    with sidecar(engine, topic, SIZED_PARTITIONS, f"--topics={topic}") as running:
        before_s = processor_s(running.pid)
        send(engine, topic, [b"v" * size] * count, SIZED_PARTITIONS)
        receive(running.consumer, count)
        used_s = processor_s(running.pid) - before_s
        mebibytes = memory(running.pid)
    return [
        Cost(f"processor time of {load.bytes / 1e6:g} MB, on {engine.name}", used_s, "s"),
        Cost(f"memory, on {engine.name}", mebibytes, "MiB"),
    ]
