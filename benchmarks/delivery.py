"""
Records through the sidecar to a Python application, beside the same application with confluent-kafka's consumer.

The claim: what the sidecar takes over costs little. A million records of 100 bytes are read in batches, on both
engines; then a thousand a second come one by one, and how old each is when the application has it is compared. Beside
it stands a tuned confluent-kafka consumer on the same broker, which commits by itself too.
"""

import os
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer as KafkaProducer

import rota
from benchmarks.peers import page, servers
from benchmarks.peers.voice import TOPIC
from benchmarks.sidecar import memory
from tests.support.sidecar import Deliverer
from tests.support.workdir import workdir

RECORDS = 1_000_000
SIZE = 100
PARTITIONS = 6
ROUNDS = 3
MANY = 5_000
PACE = 1_000
PACED = 5_000
# The first commit of a group makes the broker think for a while.
WARM_UP = 4_000
STAMP = struct.Struct("<d")
RATE_GOAL = page.at_least(200_000)
ADDED_GOAL = page.at_most(1)
CPU_GOAL = page.at_most(0.25)
MEMORY_GOAL = page.at_most(64)
TUNED = {
    "auto.offset.reset": "earliest",
    "fetch.queue.backoff.ms": 1,
    "fetch.wait.max.ms": 500,
    "queued.min.messages": 100_000,
}


class Paced(NamedTuple):
    """Records that come one by one: how old they are on arrival, and what the process beside the application used."""

    ages_ms: list[float]
    cores: float = 0
    mebibytes: float = 0

    def within_ms(self, percent: int) -> float:
        """So many of a hundred are no older."""
        return statistics.quantiles(self.ages_ms, n=100)[percent - 1]


class Usage(NamedTuple):
    """Of a process, so far."""

    seconds: float
    mebibytes: float


def usage(pid: int) -> Usage:
    """What it has used, and has."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Usage((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), memory(pid))


@contextmanager
def sidecar(address: str, group: str) -> Iterator[Deliverer]:
    """One that is beside an application, set up as it is when nobody says otherwise."""
    with workdir("delivery") as folder:
        deliverer = Deliverer(folder, address, group, [f"--topics={TOPIC}"])
        deliverer.start()
        try:
            yield deliverer
        finally:
            deliverer.terminate()


def fill(address: str) -> None:
    """Put all records there."""
    value = b"v" * SIZE
    with rota.Producer(
        address, acks=1, enable_idempotence=False, batch_size=1 << 18, linger_ms=5
    ) as producer:
        for _ in range(RECORDS // MANY):
            producer.send_many(TOPIC, [value] * MANY)
        producer.flush()


def read_all(address: str, group: str) -> float:
    """Records a second through a sidecar, from the first one on."""
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
    """The same with confluent-kafka."""
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


def send_paced(address: str) -> None:
    """One by one, a thousand a second, each with the time when it was sent."""
    producer = KafkaProducer({"bootstrap.servers": address, "linger.ms": 0, "acks": 1})
    began = time.perf_counter()
    for number in range(PACED + WARM_UP):
        time.sleep(max(began + number / PACE - time.perf_counter(), 0))
        producer.produce(
            TOPIC, STAMP.pack(time.time()) + b"v" * (SIZE - STAMP.size), partition=number % PARTITIONS
        )
        producer.poll(0)
    producer.flush()


def ages(poll: Callable[[], Iterable[bytes | None]], address: str) -> list[float]:
    """How old records are on arrival, after those of the warm-up."""
    sender = threading.Thread(target=send_paced, args=(address,))
    sender.start()
    found: list[float] = []
    while len(found) < PACED + WARM_UP:
        values = poll()
        now = time.time()
        found += [(now - STAMP.unpack_from(value)[0]) * 1000 for value in values if value is not None]
    sender.join()
    return found[WARM_UP:]


def paced(address: str, group: str) -> Paced:
    """Through a sidecar."""
    with sidecar(address, group) as beside, rota.Consumer(sidecar=beside.address) as consumer:
        consumer.poll(0)
        while not consumer.assignment():
            consumer.poll(100)
        before, began = usage(beside.process.pid), time.perf_counter()
        found = ages(
            lambda: [record.value for records in consumer.poll(1_000).values() for record in records], address
        )
        after, took_s = usage(beside.process.pid), time.perf_counter() - began
    return Paced(found, (after.seconds - before.seconds) / took_s, after.mebibytes)


def paced_by_itself(address: str, group: str) -> Paced:
    """With confluent-kafka."""
    consumer = KafkaConsumer({"bootstrap.servers": address, "group.id": group, **TUNED})
    consumer.subscribe([TOPIC])
    while not consumer.assignment():
        consumer.poll(0.1)
    found = ages(lambda: [record.value() for record in consumer.consume(1, timeout=1)], address)
    consumer.close()
    return Paced(found)


def on_new_broker(measure: Callable[[str, str], Paced]) -> Paced:
    """Nothing is there that was sent earlier."""
    with servers.kafka(0, partitions=PARTITIONS) as broker:
        return measure(broker.address, "paced")


def main() -> None:
    """Print the table."""
    told = f"{RECORDS:,} records of {SIZE} bytes, {PARTITIONS} partitions; medians of {ROUNDS} rounds"
    result = page.Page("delivery", told)
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
    slow = [(on_new_broker(paced), on_new_broker(paced_by_itself)) for _ in range(ROUNDS)]
    result.show([*rates(on_rota, pairs), *latencies(slow), *costs([ours for ours, _ in slow])])


def rates(on_rota: list[float], pairs: list[tuple[float, float]]) -> list[page.Line]:
    """Records a second."""
    rota_s, ours = statistics.median(on_rota), statistics.median(ours for ours, _ in pairs)
    theirs = statistics.median(theirs for _, theirs in pairs)
    return [
        page.Line("records a second, on Rota", f"{rota_s:,.0f}/s", goal=page.judged(RATE_GOAL, rota_s)),
        page.Line(
            "records a second, on Kafka",
            f"{ours:,.0f}/s",
            f"confluent-kafka {theirs:,.0f}/s",
            page.median_ratio(pairs),
            page.judged(RATE_GOAL, ours),
        ),
    ]


def latencies(slow: list[tuple[Paced, Paced]]) -> list[page.Line]:
    """How old records are on arrival, and how much older than without a sidecar."""
    lines = []
    for percent in (50, 90, 99):
        ours = statistics.median(mine.within_ms(percent) for mine, _ in slow)
        theirs = statistics.median(other.within_ms(percent) for _, other in slow)
        lines.append(
            page.Line(
                f"{PACE:,} a second, {percent} of 100 within, on Kafka",
                f"{ours:.2f} ms",
                f"confluent-kafka {theirs:.2f} ms",
                ours / theirs,
                f"added {page.judged(ADDED_GOAL, ours - theirs)}" if percent == 90 else "",
            )
        )
    return lines


def costs(slow: list[Paced]) -> list[page.Line]:
    """What the sidecar needs for a thousand records a second."""
    cores, memory = (
        statistics.median(one.cores for one in slow),
        statistics.median(one.mebibytes for one in slow),
    )
    return [
        page.Line(f"{PACE:,} a second: of a core", f"{cores:.2f}", goal=page.judged(CPU_GOAL, cores)),
        page.Line(f"{PACE:,} a second: memory", f"{memory:.0f} MiB", goal=page.judged(MEMORY_GOAL, memory)),
    ]


if __name__ == "__main__":
    main()
