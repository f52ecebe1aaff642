"""

Measure delivery of records through the sidecar to a Python application, beside the same application on confluent-kafka.
The claim: the sidecar adds little cost. A million records of 100 bytes are read in batches, on both backends; then a
thousand records per second arrive, and their ages on delivery are compared: once sent with a producer's default
batching (5 ms), and once each in its own batch, the most expensive case, also for the broker. The comparison is a tuned
confluent-kafka consumer on the same broker with automatic commits. Records that are sent alone also arrive from the embedded
log, with and without a handler, and at five thousand a second.
"""

import asyncio
import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer as KafkaConsumer

import rota
from benchmarks.peers import page, servers
from benchmarks.peers.pacing import (
    PARTITIONS,
    SIZE,
    USUAL_LINGER_MS,
    Paced,
    Sending,
    ages,
    handled_ages,
)
from benchmarks.peers.voice import TOPIC
from benchmarks.sidecar import memory
from tests.support.sidecar import Deliverer
from tests.support.workdir import workdir

RECORDS = 1_000_000
ROUNDS = 3
MANY = 5_000
RATE_GOAL = page.at_least(200_000)
RATIO_GOAL = page.at_least(0.6)
LINGERING_GOAL = page.at_most(0.25)
MEMORY_GOAL = page.at_most(50)
# Records with 0 to 5 ms of work each, in one partition, processed in order per key.
WORKED = 10_000
KEYS = 1_000
WORK_S = 0.005
KEYED_GOAL = page.at_most(2.1)
LINGER_MS = 10
USUAL = Sending("as producers send by default", USUAL_LINGER_MS, in_turn=False)
ALONE = Sending("each sent alone", 0, in_turn=True)
FAST = ALONE._replace(rate=5_000)
# Of a core of the sidecar, and milliseconds that 90 of 100 records may be later than without it.
CORES_GOALS = {USUAL: page.at_most(0.08), ALONE: page.at_most(0.2), FAST: page.at_most(0.5)}
ADDED_GOALS = {USUAL: page.at_most(1), ALONE: page.at_most(1.5)}
TUNED = {
    "auto.offset.reset": "earliest",
    "fetch.queue.backoff.ms": 1,
    "fetch.wait.max.ms": 500,
    "queued.min.messages": 100_000,
}


class Usage(NamedTuple):
    """CPU time and memory of a process so far."""

    seconds: float
    mebibytes: float


def usage(pid: int) -> Usage:
    """Return the CPU time that a process used so far, and its memory."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Usage((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), memory(pid))


@contextmanager
def sidecar(address: str, group: str, *flags: str) -> Iterator[Deliverer]:
    """Run a sidecar with default settings beside an application."""
    with workdir("delivery") as folder:
        deliverer = Deliverer(folder, address, group, [f"--topics={TOPIC}", *flags])
        deliverer.start()
        try:
            yield deliverer
        finally:
            deliverer.terminate()


def fill(address: str) -> None:
    """Send all records to the server at this address."""
    value = b"v" * SIZE
    with rota.Producer(
        address, acks=1, enable_idempotence=False, batch_size=1 << 18, linger_ms=5
    ) as producer:
        for _ in range(RECORDS // MANY):
            producer.send_many(TOPIC, [value] * MANY)
        producer.flush()


def read_all(address: str, group: str) -> float:
    """Return the records per second through a sidecar, from the first record on."""
    with (
        sidecar(address, group) as beside,
        rota.Consumer(sidecar=beside.address, max_poll_records=MANY) as consumer,
    ):
        found, size = 0, 0
        began = 0.0
        while found < RECORDS:
            for batch in consumer.poll_batches(1_000):
                began = began or time.perf_counter()
                found += len(batch)
                size += sum(len(value or b"") for value in batch.values)
        took_s = time.perf_counter() - began
        assert size >= RECORDS * SIZE
    return RECORDS / took_s


def read_all_by_itself(address: str, group: str) -> float:
    """Return the records per second with confluent-kafka, from the first record on."""
    consumer = KafkaConsumer({"bootstrap.servers": address, "group.id": group, **TUNED})
    consumer.subscribe([TOPIC])
    found, size = 0, 0
    began = 0.0
    while found < RECORDS:
        records = consumer.consume(MANY, timeout=1)
        if records:
            began = began or time.perf_counter()
        found += len(records)
        size += sum(len(record.value() or b"") for record in records)
    took_s = time.perf_counter() - began
    consumer.close()
    assert size >= RECORDS * SIZE
    return RECORDS / took_s


def paced(address: str, how: Sending, linger_ms: int = 0) -> Paced:
    """Measure paced delivery through a sidecar to a consumer."""
    with (
        sidecar(address, "paced", f"--linger-ms={linger_ms}") as beside,
        rota.Consumer(sidecar=beside.address) as consumer,
    ):
        consumer.poll(0)
        while not consumer.assignment():
            consumer.poll(100)

        def poll() -> list[bytes | None]:
            return [record.value for records in consumer.poll(1_000).values() for record in records]

        return measured(beside, lambda: ages(poll, address, how))


def handled(address: str, how: Sending) -> Paced:
    """Measure paced delivery through a sidecar to a handler."""
    with sidecar(address, "paced") as beside:
        return measured(beside, lambda: handled_ages(beside.address, address, how))


def measured(beside: Deliverer, run: Callable[[], list[float]]) -> Paced:
    """Measure the sidecar while records arrive."""
    before, began = usage(beside.process.pid), time.perf_counter()
    found = run()
    after, took_s = usage(beside.process.pid), time.perf_counter() - began
    return Paced(found, (after.seconds - before.seconds) / took_s, after.mebibytes)


def together(address: str, how: Sending) -> Paced:
    """Measure paced delivery with lingering in the sidecar, which batches records."""
    return paced(address, how, LINGER_MS)


def work_by_key(address: str) -> float:
    """Return the seconds that handlers take from the first record to the last."""
    chance = random.Random(1)
    begun: list[float] = []
    done: list[float] = []

    @rota.handler(TOPIC, ordering="key")
    async def work(_record: rota.Record[bytes, bytes]) -> None:
        begun.append(time.perf_counter())
        await asyncio.sleep(chance.uniform(0, WORK_S))
        done.append(time.perf_counter())
        if len(done) == WORKED:
            signal.raise_signal(signal.SIGTERM)

    with sidecar(address, "keyed", "--ordering=key") as beside:
        rota.run(work, sidecar=beside.address)
    assert len(done) == WORKED
    return done[-1] - begun[0]


def paced_by_itself(address: str, how: Sending) -> Paced:
    """Measure paced delivery with confluent-kafka."""
    consumer = KafkaConsumer({"bootstrap.servers": address, "group.id": "paced", **TUNED})
    consumer.subscribe([TOPIC])
    while not consumer.assignment():
        consumer.poll(0.1)
    found = ages(lambda: [record.value() for record in consumer.consume(1, timeout=1)], address, how)
    consumer.close()
    return Paced(found)


def on_new_broker(measure: Callable[[str, Sending], Paced], how: Sending) -> Paced:
    """Measure on a new broker without earlier records."""
    with servers.kafka(0, partitions=PARTITIONS) as broker:
        return measure(broker.address, how)


def on_new_log(measure: Callable[[str, Sending], Paced], how: Sending) -> Paced:
    """Measure on a new embedded log without earlier records."""
    with servers.rota(partitions=PARTITIONS) as server:
        return measure(f"rota://{server.address}", how)


def pairs_of(how: Sending) -> list[tuple[Paced, Paced]]:
    """Measure pairs with and without a sidecar."""
    return [(on_new_broker(paced, how), on_new_broker(paced_by_itself, how)) for _ in range(ROUNDS)]


def on_new_server(measure: Callable[[str], float]) -> float:
    """Measure on a new Rota server with one partition that has records of all keys."""
    with servers.rota(partitions=1) as server:
        address = f"rota://{server.address}"
        with rota.Producer(address) as producer:
            for number in range(WORKED):
                producer.send(TOPIC, b"v" * SIZE, key=b"%d" % (number % KEYS))
            producer.flush()
        return measure(address)


def main() -> None:
    """Run the benchmark and print its table."""
    load = f"{RECORDS:,} records of {SIZE} bytes, {PARTITIONS} partitions; medians of {ROUNDS} rounds"
    result = page.Page("delivery", load)
    with servers.rota(partitions=PARTITIONS) as server:
        address = f"rota://{server.address}"
        fill(address)
        on_rota = [read_all(address, f"rota-{number}") for number in range(ROUNDS)]
    with servers.kafka(0, partitions=PARTITIONS) as broker:
        fill(broker.address)
        pairs = [
            (read_all(broker.address, f"ours-{n}"), read_all_by_itself(broker.address, f"theirs-{n}"))
            for n in range(ROUNDS)
        ]
    lines = rates(on_rota, pairs)
    for how in (USUAL, ALONE):
        slow = pairs_of(how)
        cheap = [on_new_broker(together, how) for _ in range(ROUNDS)]
        lines += latencies(how, slow)
        lines += costs(how.what, [ours for ours, _ in slow], CORES_GOALS[how])
        lines += costs(f"{how.what}, --linger-ms={LINGER_MS}", cheap, LINGERING_GOAL)
    for where, on_new, measure, how in (
        ("", on_new_broker, paced, FAST),
        (" to a handler", on_new_broker, handled, ALONE),
        (" on the embedded log", on_new_log, paced, ALONE),
        (" on the embedded log to a handler", on_new_log, handled, ALONE),
    ):
        found = [on_new(measure, how) for _ in range(ROUNDS)]
        lines += costs(f"{how.what}{where}", found, CORES_GOALS[how])
    result.show([*lines, worked([on_new_server(work_by_key) for _ in range(ROUNDS)])])


def rates(on_rota: list[float], pairs: list[tuple[float, float]]) -> list[page.Line]:
    """Return the lines of records per second."""
    rota_s, ours = statistics.median(on_rota), statistics.median(ours for ours, _ in pairs)
    theirs, ratio = statistics.median(theirs for _, theirs in pairs), page.median_ratio(pairs)
    return [
        page.Line("records a second, on Rota", f"{rota_s:,.0f}/s", goal=page.judged(RATE_GOAL, rota_s)),
        page.Line(
            "records a second, on Kafka",
            f"{ours:,.0f}/s",
            f"confluent-kafka {theirs:,.0f}/s",
            ratio,
            page.judged(RATIO_GOAL, ratio),
        ),
    ]


def latencies(how: Sending, slow: list[tuple[Paced, Paced]]) -> list[page.Line]:
    """Return the lines of latency: ages of records on arrival, and their ratio to those without a sidecar."""
    lines = []
    for percent in (50, 90, 99):
        ours = statistics.median(mine.within_ms(percent) for mine, _ in slow)
        theirs = statistics.median(other.within_ms(percent) for _, other in slow)
        lines.append(
            page.Line(
                f"{how.what}: {percent} of 100 within",
                f"{ours:.2f} ms",
                f"confluent-kafka {theirs:.2f} ms",
                ours / theirs,
                f"added {page.judged(ADDED_GOALS[how], ours - theirs)}" if percent == 90 else "",
            )
        )
    return lines


def costs(what: str, found: list[Paced], goal: page.Goal) -> list[page.Line]:
    """Return the lines of CPU and memory that the sidecar uses."""
    cores = statistics.median(one.cores for one in found)
    memory = statistics.median(one.mebibytes for one in found)
    late = statistics.median(one.within_ms(90) for one in found)
    cost = f"{cores:.2f}, {late:.1f} ms"
    return [
        page.Line(f"{what}: of a core, 90 of 100 within", cost, goal=page.judged(goal, cores)),
        page.Line(f"{what}: memory", f"{memory:.0f} MiB", goal=page.judged(MEMORY_GOAL, memory)),
    ]


def worked(took_s: list[float]) -> page.Line:
    """Return the line of handlers that process many keys."""
    median_s = statistics.median(took_s)
    load = f"{WORKED:,} records of 0 to {WORK_S * 1000:.0f} ms work, {KEYS:,} keys, one partition"
    return page.Line(load, f"{median_s:.2f} s", goal=page.judged(KEYED_GOAL, median_s))


if __name__ == "__main__":
    main()
