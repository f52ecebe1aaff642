"""
Measure a Spark application that is a member of a group, beside Spark without Rota.

The claims: the data source reads Kafka at least 0.8 times as fast as confluent-kafka inside of `mapInArrow`, and at least 1.5 times as
fast as the JVM's connector was on such a machine; the group's commit takes at most 20 ms of a micro-batch; and `rota up` gives the
first enriched order of `examples/spark-orders` within a minute. One topic, one machine and one session on two cores serve all.
The rates are those of batch reads, of which the tasks are those of a query.

The connector cannot be resolved for this version of Spark, so that its figures are quoted: of a million such records on two cores,
157,000/s counted, and 104,000/s written with Parquet.
"""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import psycopg
from confluent_kafka import Producer as KafkaProducer
from pyspark.sql import DataFrame, Row, SparkSession

import rota
import rota_spark
from benchmarks.peers import page, servers
from benchmarks.peers.map_in_arrow import read_without_rota
from rota_spark import Settings, SqlSink
from rota_spark.membership import Membership
from rota_spark.query import Function, Sink
from tests.examples.laptop import Laptop, enriched_orders
from tests.support import kafka, postgres
from tests.support.spark.installation import prepare
from tests.support.spark.local import CORES, local_session
from tests.support.tree import REPO
from tests.support.workdir import workdir

TOPIC, MICRO_TOPIC, ALONE_TOPIC = "bench", "bench-micro", "bench-alone"
PARTITIONS = 6
VALUE = b"v" * 100
READS, ALONE, COMMITS, SINKS, LAPTOP = "reads", "alone", "commits", "sinks", "laptop"
PEER_GOAL = page.at_least(0.8)
CONNECTOR_GOAL = page.at_least(1.5)
COMMIT_GOAL = page.at_most(20)
FIRST_ORDER_GOAL = page.at_most(60)
COUNTED, PARQUET = "counted", "with Parquet"
# Records a second of the JVM's connector, quoted.
CONNECTOR = {COUNTED: 157_000, PARQUET: 104_000}
WITHIN_S = 600
CREATE = "CREATE TABLE events (log_partition INT NOT NULL, log_offset BIGINT NOT NULL, value TEXT NOT NULL)"
APPEND = "INSERT INTO events (log_partition, log_offset, value) VALUES (%s, %s, %s)"
COLUMNS = {"log_partition": "INT", "log_offset": "BIGINT", "value": "TEXT"}


class Size(NamedTuple):
    """Size of the measurement."""

    rounds: int
    # Of the topic that is read as a whole.
    records: int
    # Of a query, and records of each.
    micro_batches: int
    batch_records: int
    # Of the topic whose records were sent one by one.
    alone: int


FULL = Size(rounds=5, records=1_000_000, micro_batches=40, batch_records=1_000, alone=12_000)
QUICK = Size(rounds=1, records=20_000, micro_batches=4, batch_records=200, alone=600)


class Systems(NamedTuple):
    """Addresses of the systems, which all hold the same topics, and the session that reads them."""

    kafka: str
    rota: str
    session: SparkSession


def filled_kafka(address: str, topic: str, records: int) -> None:
    """Append records to all partitions in turn; those of ALONE_TOPIC each after the answer to the one before."""
    producer = KafkaProducer({"bootstrap.servers": address, "queue.buffering.max.messages": records})
    for number in range(records):
        producer.produce(topic, VALUE, partition=number % PARTITIONS)
        if topic == ALONE_TOPIC:
            producer.flush()
    producer.flush()


def filled_rota(address: str, topic: str, records: int) -> None:
    """The same."""
    with rota.Producer(address) as producer:
        for number in range(records):
            producer.send(topic, VALUE, partition=number % PARTITIONS)
            if topic == ALONE_TOPIC:
                producer.flush()
        producer.flush()


@contextmanager
def systems(size: Size) -> Iterator[Systems]:
    """Run a broker, an embedded log and a session whose Java compiles as it does by default."""
    topics = {
        TOPIC: size.records,
        MICRO_TOPIC: size.micro_batches * size.batch_records,
        ALONE_TOPIC: size.alone,
    }
    with ExitStack() as running:
        brokers = running.enter_context(kafka.running(settings={"group.initial.rebalance.delay.ms": "0"}))
        log = running.enter_context(servers.rota(partitions=PARTITIONS))
        address = f"rota://{log.address}"
        rota.create_topics(address, {MICRO_TOPIC: PARTITIONS, ALONE_TOPIC: PARTITIONS})
        for topic, records in topics.items():
            brokers.create_topic(topic, partitions=PARTITIONS)
            filled_kafka(brokers.bootstrap, topic, records)
            filled_rota(address, topic, records)
        folder = running.enter_context(workdir("spark-benchmark"))
        session = running.enter_context(local_session(folder, java_options=""))
        rota_spark.register(session)
        yield Systems(brokers.bootstrap, address, session)


def source(session: SparkSession, address: str, topic: str = TOPIC) -> DataFrame:
    """Return the records of a topic, by Rota's data source."""
    options = {"bootstrapServers": address, "topics": topic, "inputPartitions": str(CORES)}
    return session.read.format("rota").options(**options).load()


def counted(records: DataFrame, expected: int) -> None:
    """Count them."""
    found = records.count()
    assert found == expected, f"{found} records of {expected}"


def written(records: DataFrame, expected: int) -> None:
    """Write them to a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as folder:
        records.write.parquet(f"{folder}/records")
        files = [file for file in Path(folder, "records").iterdir() if file.suffix == ".parquet"]
        assert len(files) == CORES, f"{expected} records in {len(files)} files"


def readers_of(at: Systems, topic: str) -> Mapping[str, Callable[[], DataFrame]]:
    """Return what reads a topic: the data source from both systems, and `mapInArrow` beside it."""
    return {
        "Kafka": lambda: source(at.session, at.kafka, topic),
        "beside": lambda: read_without_rota(at.session, at.kafka, topic, partitions=PARTITIONS, tasks=CORES),
        "embedded log": lambda: source(at.session, at.rota, topic),
    }


def rates_of(
    readers: Mapping[str, Callable[[], DataFrame]],
    act: Callable[[DataFrame, int], None],
    records: int,
    rounds: int,
) -> Mapping[str, list[float]]:
    """Return the records a second of each reader, in rounds of all of them."""
    rates: dict[str, list[float]] = {name: [] for name in readers}
    for number in range(rounds + 1):
        for name, reader in readers.items():
            began = time.perf_counter()
            act(reader(), records)
            # Java compiles in the first round.
            if number:
                rates[name].append(records / (time.perf_counter() - began))
    return rates


def reads(at: Systems, size: Size) -> list[page.Line]:
    """Compare the data source with `mapInArrow` and with the quoted figures."""
    lines = []
    for what, act in ((COUNTED, counted), (PARQUET, written)):
        rates = rates_of(readers_of(at, TOPIC), act, size.records, size.rounds)
        lines += [
            read_line(f"records {what}, Kafka", rates["Kafka"], rates["beside"], PEER_GOAL),
            quoted_line(f"records {what}, Kafka", rates["Kafka"], CONNECTOR[what]),
            read_line(f"records {what}, embedded log", rates["embedded log"], rates["beside"], None),
        ]
    return lines


def alone(at: Systems, size: Size) -> list[page.Line]:
    """Compare them for records that were sent one by one; most of the time is that of the tasks' start."""
    rates = rates_of(readers_of(at, ALONE_TOPIC), counted, size.alone, size.rounds)
    return [
        read_line(f"{size.alone:,} records sent alone, {name}", rates[name], rates["beside"], None)
        for name in ("Kafka", "embedded log")
    ]


def read_line(what: str, ours: Sequence[float], theirs: Sequence[float], goal: page.Goal | None) -> page.Line:
    """Return the line of two rates of the same rounds."""
    ratio = page.median_ratio(zip(ours, theirs, strict=True))
    judged = "" if goal is None else page.judged(goal, ratio)
    beside = f"mapInArrow {statistics.median(theirs):,.0f}/s"
    return page.Line(what, f"{statistics.median(ours):,.0f}/s", beside, ratio, judged)


def quoted_line(what: str, ours: Sequence[float], theirs: int) -> page.Line:
    """Return the line of a rate beside a figure that was not measured here."""
    rate = statistics.median(ours)
    judged = page.judged(CONNECTOR_GOAL, rate / theirs)
    return page.Line(what, f"{rate:,.0f}/s", f"JVM connector {theirs:,}/s, quoted", rate / theirs, judged)


@contextmanager
def timed(kind: type, name: str) -> Iterator[list[float]]:
    """Time the calls of a method, in ms."""
    times: list[float] = []
    original = getattr(kind, name)

    def call(*arguments: Any) -> Any:  # noqa: ANN401 - of any method
        began = time.perf_counter()
        try:
            return original(*arguments)
        finally:
            times.append((time.perf_counter() - began) * 1000)

    with mock.patch.object(kind, name, call):
        yield times


def run(at: Systems, address: str, group: str, sink: Sink, size: Size) -> None:
    """Run a query as a new group, from the beginning of a topic to its end."""
    settings = Settings(
        bootstrap_servers=address,
        group_id=group,
        topics=[MICRO_TOPIC],
        max_records_per_batch=size.batch_records,
    )
    with rota_spark.process(at.session, sink, settings, trigger={"availableNow": True}) as query:
        assert query.await_termination(WITHIN_S), f"{group} has not ended"


def commits(at: Systems, size: Size) -> list[page.Line]:
    """Measure what a group's commit adds to a micro-batch."""
    lines = []
    for name, address in (("embedded log", at.rota), ("Kafka", at.kafka)):
        rounds: list[tuple[float, float, float]] = []
        for number in range(size.rounds):
            with (
                timed(Membership, "begin") as begun,
                timed(Membership, "commit") as committed,
                timed(Function, "write") as wrote,
            ):
                run(at, address, f"commits-{number}", Function(DataFrame.count), size)
            assert len(committed) >= size.micro_batches, f"only {len(committed)} batches"
            rounds.append((p50(begun), p50(committed), p50(wrote)))
        began_ms, commit_ms, write_ms = (statistics.median(each) for each in zip(*rounds, strict=True))
        lines += [
            page.Line(
                f"a micro-batch's commit, {name}, p50",
                f"{commit_ms:.1f} ms",
                f"records counted in {write_ms:.0f} ms",
                commit_ms / write_ms,
                page.judged(COMMIT_GOAL, commit_ms),
            ),
            page.Line(
                f"look at positions before it, {name}, p50",
                f"{began_ms:.1f} ms",
                f"records counted in {write_ms:.0f} ms",
                began_ms / write_ms,
            ),
        ]
    return lines


def sinks(at: Systems, size: Size) -> list[page.Line]:
    """Compare the exactly-once sink with a plain append to the same table of PostgreSQL."""
    rounds: list[tuple[float, float]] = []
    with postgres.running(durable=True) as server:
        for number in range(size.rounds):
            dsn = server.new_database(f"bench{number}")
            with closing(psycopg.connect(dsn, autocommit=True)) as connection:
                connection.execute(CREATE)
            merge = f"INSERT INTO events ({', '.join(COLUMNS)}) SELECT {', '.join(COLUMNS)} FROM {{staged}}"
            with timed(SqlSink, "write") as exactly_once:
                sink = SqlSink(connecting(dsn), rows_of, COLUMNS, merge)
                run(at, at.rota, f"sink-{number}", sink, size)
            with timed(Function, "write") as plain:
                run(at, at.rota, f"plain-{number}", Function(appending(dsn)), size)
            with closing(psycopg.connect(dsn)) as connection:
                (found,) = connection.execute("SELECT count(*) FROM events").fetchone() or (0,)
            expected = 2 * size.micro_batches * size.batch_records
            assert found == expected, f"{found} rows instead of {expected}"
            rounds.append((p50(exactly_once), p50(plain)))
    ours, theirs = (statistics.median(each) for each in zip(*rounds, strict=True))
    what = f"exactly once to PostgreSQL, {size.batch_records:,} records, p50"
    return [page.Line(what, f"{ours:.0f} ms", f"plain append {theirs:.0f} ms", page.median_ratio(rounds))]


def rows_of(records: DataFrame) -> DataFrame:
    """Make rows of records."""
    return records.selectExpr("partition AS log_partition", "offset AS log_offset", "string(value) AS value")


def connecting(dsn: str) -> Callable[[], Any]:
    """Return a function that connects, in the driver and in tasks."""
    return lambda: psycopg.connect(dsn)


def appending(dsn: str) -> Callable[[DataFrame], None]:
    """Return the function that appends the rows of a batch, one transaction for each task."""

    def append(rows: Iterable[Row]) -> None:
        with psycopg.connect(dsn) as connection, connection.cursor() as cursor:
            cursor.executemany(APPEND, [tuple(row) for row in rows])

    return lambda records: rows_of(records).rdd.foreachPartition(append)


def p50(times_ms: Sequence[float]) -> float:
    """Return the median of the batches' times."""
    return statistics.median(times_ms)


def first_order_s() -> float:
    """Return the seconds from `rota up` to the first enriched order, with no state from an earlier run."""
    installation = prepare()
    # Java as users have it.
    environment = {
        name: installation.environment[name] for name in ("SPARK_HOME", "JAVA_HOME", "PYSPARK_PYTHON")
    }
    with workdir("spark-benchmark") as folder, mock.patch.dict(os.environ, environment):
        example = folder / "spark-orders"
        shutil.copytree(REPO / "examples" / "spark-orders", example)
        laptop = Laptop(example, folder / ".rota", partitions=12)
        began = time.perf_counter()
        running = laptop.start("up")
        try:
            running.wait_until(lambda: bool(enriched_orders(example / "orders.db")), within_s=WITHIN_S)
            return time.perf_counter() - began
        finally:
            running.stop(within_s=WITHIN_S)


def laptop_line(size: Size) -> page.Line:
    """Return the line of the example on a laptop."""
    seconds = statistics.median(first_order_s() for _ in range(size.rounds))
    judged = page.judged(FIRST_ORDER_GOAL, seconds)
    return page.Line("rota up to the first enriched order", f"{seconds:.0f} s", goal=judged)


def main() -> None:
    """Run the benchmark and print its table."""
    explanation = f"{FULL.records:,} records of {len(VALUE)} bytes, {PARTITIONS} partitions, {CORES} cores; medians of {FULL.rounds} rounds"
    parts: Mapping[str, Callable[[Systems, Size], list[page.Line]]] = {
        READS: reads,
        ALONE: alone,
        COMMITS: commits,
        SINKS: sinks,
    }
    result = page.Page(
        "spark",
        explanation,
        quick=f"one round of {QUICK.records:,} records and {QUICK.micro_batches} micro-batches, to try it",
        parts=(*parts, LAPTOP),
    )
    size = QUICK if result.quick else FULL
    lines: list[page.Line] = []
    if wanted := [measure for name, measure in parts.items() if name in result.parts]:
        with systems(size) as at:
            for measure in wanted:
                lines += measure(at, size)
    if LAPTOP in result.parts:
        lines.append(laptop_line(size))
    result.show(lines)


if __name__ == "__main__":
    main()
