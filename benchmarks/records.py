"""
Measure reading records of Kafka with the sidecar's Python client, beside its client on librdkafka.

The claim: where librdkafka does not have the login of a cluster, a sidecar reads records at 0.3 of the rate that it has
with librdkafka. Both of its clients read the same topics of one broker, one after the other in each round, as the sidecar
does: into batches for the application, in as many fetches as it takes. Topics differ in the codec of their batches.

The processor time for each record is held against the same goal, and a consumer of confluent-kafka alone, which only counts the
records, is shown as well.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.peers import page, servers
from benchmarks.peers.codecs import events
from rota_sidecar.core.delivery.events import Read
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.python_client.reading import PythonRecords
from rota_sidecar.engines.kafka.read_options import OnOutage, ReadOptions
from rota_sidecar.engines.kafka.reading import KafkaRecords
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.records import OnFetchResult, Records
from tests.sidecar.engines.readers import BYTES_MAX, Reader

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 500_000
RECORDS_QUICK = 50_000
ROUNDS = 5
MANY = 5_000
WITHIN_S = 120
GOAL = page.at_least(0.3)
PROCESSOR_GOAL = page.at_most(3.3)
# The batches of Java's producers have up to 16 KiB.
PRODUCER: Mapping[str, str | int] = {"linger.ms": 50, "batch.size": 16 << 10, "acks": 1}
OPTIONS = ReadOptions("benchmark", read_committed=True, with_keys=False)
Client = Callable[[KafkaSettings, OnFetchResult, OnOutage, ReadOptions], Records]


class Cost(NamedTuple):
    """Cost of one client in one round."""

    per_second: float
    # Processor time of the client's process for each record, in microseconds.
    processor_us: float


def write(bootstrap: str, topic: str, codec: str, count: int) -> None:
    """Create a topic and write its records."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(WITHIN_S)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "queue.buffering.max.messages": count,
            **PRODUCER,
        }
    )
    for number, value in enumerate(events(count)):
        producer.produce(topic, value, b"%d" % (number % 1_000))
        if not number % MANY:
            producer.poll(0)
    assert producer.flush(WITHIN_S) == 0


def read(bootstrap: str, client: Client, topic: str, count: int) -> Cost:
    """Read all records of a topic, as a sidecar without an application that slows it down."""

    async def story() -> Cost:
        settings = KafkaSettings((bootstrap,))
        reader = Reader(lambda on_result, on_outage: client(settings, on_result, on_outage, OPTIONS))
        here, epoch = Partition(topic, 0), reader.open()
        found, offset, first, began = 0, 0, 0, 0.0
        used = time.process_time()
        try:
            while found < count:
                result = await reader.fetch(here, offset, delivery_epoch=epoch, bytes_max=BYTES_MAX)
                assert isinstance(result, Read), result
                found += sum(batch.count for batch in result.batches)
                offset = result.next_offset
                if not first:
                    # From the first records on: connections take a while.
                    first, began = found, time.perf_counter()
            per_second = (found - first) / (time.perf_counter() - began)
            return Cost(per_second, (time.process_time() - used) / count * 1e6)
        finally:
            await reader.records.close()

    return asyncio.run(story())


def consume(bootstrap: str, topic: str, count: int) -> Cost:
    """Read all records of a topic with a consumer of confluent-kafka alone."""
    used = time.process_time()
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found, first, began = 0, 0, 0.0
    while found < count:
        found += len(consumer.consume(MANY, timeout=0.1))
        if found and not first:
            first, began = found, time.perf_counter()
    per_second = (found - first) / (time.perf_counter() - began)
    cost = Cost(per_second, (time.process_time() - used) / count * 1e6)
    consumer.close()
    return cost


class Round(NamedTuple):
    """The three of one round."""

    python: Cost
    librdkafka: Cost
    alone: Cost


def lines(codec: str, rounds: Sequence[Round]) -> Sequence[page.Line]:
    """Return the lines of one codec: rates, and processor time."""
    return [
        _rates(f"read, {codec}", "librdkafka", [(each.python, each.librdkafka) for each in rounds], GOAL),
        _rates(f"the same, {codec}", "counted only", [(each.python, each.alone) for each in rounds]),
        _processor(f"processor time, {codec}", [(each.python, each.librdkafka) for each in rounds]),
    ]


Pairs = Sequence[tuple[Cost, Cost]]


def _rates(what: str, peer: str, pairs: Pairs, goal: page.Goal | None = None) -> page.Line:
    ratio = page.median_ratio((ours.per_second, theirs.per_second) for ours, theirs in pairs)
    mine, other = (statistics.median(pair[side].per_second for pair in pairs) for side in (0, 1))
    judged = "" if goal is None else page.judged(goal, ratio)
    return page.Line(what, f"{mine:,.0f}/s", f"{peer} {other:,.0f}/s", ratio, judged)


def _processor(what: str, pairs: Pairs) -> page.Line:
    ratio = page.median_ratio((ours.processor_us, theirs.processor_us) for ours, theirs in pairs)
    mine, other = (statistics.median(pair[side].processor_us for pair in pairs) for side in (0, 1))
    return page.Line(
        what, f"{mine:.2f} µs", f"librdkafka {other:.2f} µs", ratio, page.judged(PROCESSOR_GOAL, ratio)
    )


def main() -> None:
    """Run the benchmark and print its table."""
    result = page.Page(
        "records",
        f"JSON events of about 140 bytes, one partition; medians of {ROUNDS} rounds",
        quick="fewer records and one round",
        parts=CODECS,
    )
    count, rounds = (RECORDS_QUICK, 1) if result.quick else (RECORDS, ROUNDS)
    found: list[page.Line] = []
    with servers.kafka(0, partitions=1) as broker:
        for codec in result.parts:
            topic = f"records-{codec}"
            write(broker.address, topic, codec, count)
            measured = [
                Round(
                    read(broker.address, PythonRecords, topic, count),
                    read(broker.address, KafkaRecords, topic, count),
                    consume(broker.address, topic, count),
                )
                for _ in range(rounds)
            ]
            found += lines(codec, measured)
    result.show(found)


if __name__ == "__main__":
    main()
