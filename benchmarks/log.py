"""
Measure sending and fetching records with the SDK and the embedded log, beside confluent-kafka and a Kafka broker.

The claim: on one machine, the embedded log is as fast as Kafka. A million records of 100 bytes are sent one by one and
fetched, by a client process beside each server; then single records go from a producer to a waiting consumer. Both
servers acknowledge once the record survives a crash of the process (`acks=1`); flushing is measured separately,
because a Kafka broker does not flush.

The cost of validating each batch is timed within the server, whose CPU time is shown with and without it, because two
separate runs differ by more. Columns of equal lengths cost nothing to validate, so records of different lengths are
measured too. Each codec of compressed batches is measured beside none.
"""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka import TopicPartition as KafkaPartition

import rota
import rota.producer.options
from benchmarks.peers import codecs, page, servers, timed_check
from benchmarks.peers.voice import TOPIC
from rota.log_reader import LogReader
from tests.support.workdir import workdir

RECORDS = 1_000_000
VALUE = b"v" * 100
ROUNDS = 3
MANY = 5_000
SINGLES = 500
WARM_UP = 50
WITHIN_S = 60
UNEVEN = [b"v" * (50 + number % 101) for number in range(MANY)]
# Repetitions, because the system counts CPU time in hundredths of a second.
CHECK_TIMES = 2
CHECK_GOAL = page.at_most(1.03)
PRODUCE_GOAL = page.at_least(0.8)
PRODUCE_MANY_GOAL = page.at_least(1.2)
LATENCY_GOAL = page.at_most(1.5)
CONSUME_GOAL = page.at_least(0.8)
TUNED = {"fetch.queue.backoff.ms": 10, "fetch.wait.max.ms": 500}
KAFKA_PRODUCER = {"linger.ms": 5, "queue.buffering.max.messages": RECORDS, "acks": 1}
LATENCY_PRODUCER = {"linger.ms": 0, "acks": 1}


class Latency(NamedTuple):
    """Latency from send to receipt."""

    p50_ms: float
    p99_ms: float


def per_second(act: Callable[[], None]) -> float:
    """Return the records per second of a call that handles all records."""
    began = time.perf_counter()
    act()
    return RECORDS / (time.perf_counter() - began)


def rota_send(address: str, acks: rota.producer.options.Acks) -> None:
    """Send all records one by one."""
    with rota.Producer(address, acks=acks, enable_idempotence=False) as producer:
        send = producer.send
        for _ in range(RECORDS):
            send(TOPIC, VALUE)
        producer.flush()


def rota_send_many(address: str, values: Sequence[bytes] = (VALUE,) * MANY) -> None:
    """Send all records in calls of 5,000."""
    with rota.Producer(address, acks=1, enable_idempotence=False) as producer:
        for _ in range(RECORDS // MANY):
            producer.send_many(TOPIC, values)
        producer.flush()


def kafka_send(address: str) -> None:
    """Send all records one by one."""
    producer = KafkaProducer({"bootstrap.servers": address, **KAFKA_PRODUCER})
    produce, poll = producer.produce, producer.poll
    for number in range(RECORDS):
        produce(TOPIC, VALUE)
        if not number % MANY:
            poll(0)
    producer.flush()


def rota_fetch(address: str) -> None:
    """Fetch all values from the log start."""
    found, offset, size = 0, 0, 0
    with LogReader(address) as reader:
        while found < RECORDS:
            (page_,) = reader.fetch({(TOPIC, 0): offset}, partition_max_bytes=3 << 20)
            offset = page_.next_offset
            for batch in page_.batches:
                found += len(batch)
                size += sum(len(value) for value in batch.values if value is not None)
    assert size >= RECORDS * len(VALUE)


def kafka_fetch(address: str) -> None:
    """The same."""
    consumer = KafkaConsumer({"bootstrap.servers": address, "group.id": "none", **TUNED})
    consumer.assign([KafkaPartition(TOPIC, 0, 0)])
    found, size = 0, 0
    while found < RECORDS:
        records = consumer.consume(MANY, timeout=1)
        found += len(records)
        size += sum(len(record.value() or b"") for record in records)
    consumer.close()
    assert size >= RECORDS * len(VALUE)


def rota_latency(address: str) -> Latency:
    """Measure single records to a waiting consumer."""
    with rota.Producer(address, acks=1, linger_ms=0) as producer, LogReader(address) as reader:
        offset = producer.send(TOPIC, VALUE).result(WITHIN_S).offset + 1

        def once() -> None:
            nonlocal offset
            producer.send(TOPIC, VALUE)
            while True:
                (found,) = reader.fetch({(TOPIC, 0): offset}, max_wait_ms=WITHIN_S * 1000)
                if found.batches:
                    offset = found.next_offset
                    return

        return latency_of(once)


def kafka_latency(address: str) -> Latency:
    """The same."""
    producer = KafkaProducer({"bootstrap.servers": address, **LATENCY_PRODUCER})
    consumer = KafkaConsumer({"bootstrap.servers": address, "group.id": "none", **TUNED})
    _, end = consumer.get_watermark_offsets(KafkaPartition(TOPIC, 0))
    consumer.assign([KafkaPartition(TOPIC, 0, end)])

    def once() -> None:
        producer.produce(TOPIC, VALUE)
        producer.poll(0)
        assert consumer.poll(WITHIN_S) is not None

    latency = latency_of(once)
    producer.flush()
    consumer.close()
    return latency


def latency_of(once: Callable[[], None]) -> Latency:
    """Measure the latency of a call that is repeated."""
    for _ in range(WARM_UP):
        once()
    times = []
    for _ in range(SINGLES):
        began = time.perf_counter()
        once()
        times.append((time.perf_counter() - began) * 1000)
    cuts = statistics.quantiles(times, n=100)
    return Latency(cuts[49], cuts[98])


def resident_mb(pid: int) -> int:
    """Return the resident memory of a process."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    return int(fields["VmRSS"].split()[0]) // 1024


def rate(what: str, ours: Sequence[float], theirs: Sequence[float], goal: page.Goal | None) -> page.Line:
    """Return the line of two rates that were measured in the same rounds."""
    ratio = page.median_ratio(zip(ours, theirs, strict=True))
    judged = "" if goal is None else page.judged(goal, ratio)
    mine, other = statistics.median(ours), statistics.median(theirs)
    return page.Line(what, f"{mine:,.0f}/s", f"Kafka {other:,.0f}/s", ratio, judged)


class Round(NamedTuple):
    """Results of one server in one round."""

    sent: float
    fetched: float
    latency: Latency
    memory_mb: int
    # Rota only.
    sent_many: float = 0
    sent_flushed: float = 0


def of_rota() -> Round:
    """Run a round on a new Rota server with an empty log."""
    with servers.rota(partitions=1) as server:
        address = f"rota://{server.address}"
        sent = per_second(lambda: rota_send(address, 1))
        fetched = per_second(lambda: rota_fetch(address))
        return Round(
            sent,
            fetched,
            rota_latency(address),
            resident_mb(server.pid),
            per_second(lambda: rota_send_many(address)),
            per_second(lambda: rota_send(address, "all")),
        )


def cost_of_check(values: Sequence[bytes]) -> tuple[float, float]:
    """Return the server's CPU time for appending all records, in seconds: with validation, and without it."""
    with workdir("check") as folder:
        file = folder / "spent"
        os.environ[timed_check.FILE] = str(file)
        with servers.rota(partitions=1, program=timed_check.__name__) as server:
            before_s = server.processor_s()
            for _ in range(CHECK_TIMES):
                rota_send_many(f"rota://{server.address}", values)
            used_s = server.processor_s() - before_s
            return used_s, used_s - timed_check.spent_s(file)


def checked(what: str, values: Sequence[bytes]) -> page.Line:
    """Return the line of the cost of checking batches of these records."""
    rounds = [cost_of_check(values) for _ in range(ROUNDS)]
    ratio = page.median_ratio(rounds)
    with_s, without_s = (statistics.median(each) for each in zip(*rounds, strict=True))
    judged = page.judged(CHECK_GOAL, ratio)
    return page.Line(what, f"{with_s:.2f} s", f"unchecked {without_s:.2f} s", ratio, judged)


def of_kafka() -> Round:
    """Run a round on a Kafka broker."""
    with servers.kafka(0, partitions=1) as broker:
        sent = per_second(lambda: kafka_send(broker.address))
        fetched = per_second(lambda: kafka_fetch(broker.address))
        return Round(sent, fetched, kafka_latency(broker.address), resident_mb(broker.pid))


def beside_kafka() -> list[page.Line]:
    """Measure both systems in the same rounds."""
    rounds = [(of_rota(), of_kafka()) for _ in range(ROUNDS)]
    mine, other = ([pair[side] for pair in rounds] for side in (0, 1))
    sent = [each.sent for each in other]
    return [
        rate("sent one by one", [each.sent for each in mine], sent, PRODUCE_GOAL),
        rate("sent 5,000 at a time", [each.sent_many for each in mine], sent, PRODUCE_MANY_GOAL),
        rate("sent one by one, flushed", [each.sent_flushed for each in mine], sent, None),
        rate("fetched", [each.fetched for each in mine], [each.fetched for each in other], CONSUME_GOAL),
        times("one record, half of them within", 0, mine, other, LATENCY_GOAL),
        times("one record, 99 of 100 within", 1, mine, other, None),
        memory(mine, other),
    ]


def checks() -> list[page.Line]:
    """Measure what the validation of batches costs."""
    return [
        checked("server's work, batches checked", [VALUE] * MANY),
        checked("the same, records of different lengths", UNEVEN),
    ]


def main() -> None:
    """Run the benchmark and print its table."""
    parts: Mapping[str, Callable[[], list[page.Line]]] = {
        "kafka": beside_kafka,
        "checks": checks,
        "codecs": lambda: codecs.lines(RECORDS, ROUNDS),
    }
    load = f"{RECORDS:,} records of {len(VALUE)} bytes (codecs: JSON events), one partition; medians of {ROUNDS} rounds"
    result = page.Page("log", load, parts=tuple(parts))
    result.show([line for part in result.parts for line in parts[part]()])


def times(
    what: str, which: int, mine: Sequence[Round], other: Sequence[Round], goal: page.Goal | None
) -> page.Line:
    """Return the line of two latencies that were measured in the same rounds."""
    ours, theirs = (statistics.median(each.latency[which] for each in side) for side in (mine, other))
    ratio = ours / theirs
    judged = "" if goal is None else page.judged(goal, ratio)
    return page.Line(what, f"{ours:.2f} ms", f"Kafka {theirs:.2f} ms", ratio, judged)


def memory(mine: Sequence[Round], other: Sequence[Round]) -> page.Line:
    """Return the line of the servers' memory after all rounds."""
    ours, theirs = (statistics.median(each.memory_mb for each in side) for side in (mine, other))
    return page.Line("server's memory", f"{ours:.0f} MB", f"Kafka {theirs:.0f} MB", ours / theirs)


if __name__ == "__main__":
    main()
