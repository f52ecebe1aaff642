"""Results and offsets in one transaction of SQLite or PostgreSQL: crashes around it, late owners, and a sink that is another database."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from typing_extensions import override

import rota_spark
from rota import GroupMetadata
from rota.stores import SqlStore
from rota_spark import Query, Settings, SqlSink
from rota_spark.membership import Batch, Member
from tests.spark.results import AVAILABLE_NOW, WITHIN_S
from tests.support.coordinator import Coordinator, serving
from tests.support.processes import wait_for
from tests.support.records import batch, committed, produce
from tests.support.sidecar import QUICK

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

PARTITIONS = 3
RECORDS = 400
KEYS = 7
MERGE = (
    "INSERT INTO totals AS t SELECT name, amount FROM {staged} WHERE true "
    "ON CONFLICT (name) DO UPDATE SET amount = t.amount + excluded.amount"
)
Connect = Callable[[], Any]


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with serving(tmp_path_factory.mktemp("coordinator")) as coordinator:
        yield coordinator


@pytest.fixture(params=["sqlite", "postgresql"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    """Connects to a database with an empty table of totals, in the driver and in tasks."""
    if request.param == "sqlite":
        return with_totals(to_sqlite(str(tmp_path / "sink.db")))
    dsn: str = request.getfixturevalue("database")
    return with_totals(lambda: psycopg.connect(dsn))


def to_sqlite(file: str) -> Connect:
    return lambda: sqlite3.connect(file, isolation_level=None, timeout=30)


def with_totals(connect: Connect) -> Connect:
    with closing(connect()) as connection:
        connection.execute("CREATE TABLE totals (name TEXT PRIMARY KEY, amount BIGINT NOT NULL)")
        connection.commit()
    return connect


def sums(records: DataFrame) -> DataFrame:
    """Sum the values of each key."""
    return (
        records.groupBy(records.key.cast("string").alias("name"))
        .agg({"value": "sum"})
        .selectExpr("name", "CAST(`sum(value)` AS BIGINT) AS amount")
    )


def values_as_numbers(records: DataFrame) -> DataFrame:
    return sums(records.withColumn("value", records.value.cast("string").cast("bigint")))


def sink_of(connect: Connect, kind: type[SqlSink] = SqlSink, merge: str = MERGE) -> SqlSink:
    return kind(connect, values_as_numbers, {"name": "TEXT", "amount": "BIGINT"}, merge)


class CrashesAfterCommit(SqlSink):
    """The driver is gone after the sink's commit, before the group's."""

    @override
    def write(self, records: DataFrame, batch: Batch, member: Member) -> bool:
        assert super().write(records, batch, member)
        raise ConnectionAbortedError("crashed after the commit")


def settings(coordinator: Coordinator, name: str) -> Settings:
    address = f"rota://{coordinator.address}"
    return Settings(
        bootstrap_servers=address,
        group_id=name,
        topics=[name],
        max_records_per_batch=500,
        sidecar_flags=QUICK,
    )


def fill(coordinator: Coordinator, topic: str) -> Mapping[str, int]:
    """Append records to a new topic; return the totals of a single process."""
    coordinator.make_topic(topic, PARTITIONS)
    totals = dict.fromkeys((f"k{number}" for number in range(KEYS)), 0)
    for partition in range(PARTITIONS):
        values = range(partition * RECORDS, (partition + 1) * RECORDS)
        keys = [f"k{value % KEYS}" for value in values]
        for key, value in zip(keys, values, strict=True):
            totals[key] += value
        produce(coordinator.address, topic, partition, batch([str(value) for value in values], keys=keys))
    return totals


def rows(connect: Connect, sql: str) -> list[tuple[Any, ...]]:
    with closing(connect()) as connection:
        return list(connection.execute(sql).fetchall())


def totals_in(connect: Connect) -> Mapping[str, int]:
    return dict(rows(connect, "SELECT name, amount FROM totals"))


def run(spark: SparkSession, sink: SqlSink, of: Settings) -> None:
    with rota_spark.process(spark, sink, of, trigger=AVAILABLE_NOW) as query:
        assert query.await_termination(WITHIN_S)


def batches_of(query: Query) -> int:
    """Return the number of the last batch."""
    progress = query.streaming.lastProgress
    return 0 if progress is None else int(progress["batchId"])


def test_crashes_before_and_after_the_sinks_commit_change_nothing_and_no_checkpoint_is_needed(
    spark_session: SparkSession, coordinator: Coordinator, connect: Connect, unique_name: str
) -> None:
    totals = fill(coordinator, unique_name)
    of = settings(coordinator, unique_name)

    with pytest.raises(StreamingQueryException, match="no_such_table"):
        run(spark_session, sink_of(connect, merge="INSERT INTO no_such_table SELECT * FROM {staged}"), of)
    assert totals_in(connect) == {}
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="crashed after the commit"):
            run(spark_session, sink_of(connect, CrashesAfterCommit), of)
    # Two batches are stored, and none is committed in the group: the store is the truth.
    assert sum(offset for (offset,) in rows(connect, "SELECT next_offset FROM rota_offsets")) == 1000
    run(spark_session, sink_of(connect), of)

    assert totals_in(connect) == totals
    ends = {(unique_name, number): RECORDS for number in range(PARTITIONS)}
    assert committed(coordinator.address, unique_name) == ends
    stored = rows(connect, "SELECT topic, partition, next_offset FROM rota_offsets")
    assert {(topic, number): offset for topic, number, offset in stored} == ends
    assert rows(connect, "SELECT * FROM rota_staging_amount_name") == []


def test_a_driver_whose_fence_was_raised_meanwhile_stores_nothing(
    spark_session: SparkSession, coordinator: Coordinator, connect: Connect, unique_name: str
) -> None:
    fill(coordinator, unique_name)
    later = GroupMetadata(
        group_id=unique_name, incarnation=1 << 40, generation_id=1, member_id="the owner that came later"
    )
    overtaken: list[int] = []

    def overtake(records: DataFrame) -> DataFrame:
        if not overtaken:
            with closing(connect()) as connection:
                SqlStore(connection).assign(later, [(unique_name, number) for number in range(PARTITIONS)])
        overtaken.append(1)
        return values_as_numbers(records)

    sink = SqlSink(connect, overtake, {"name": "TEXT", "amount": "BIGINT"}, MERGE)
    with rota_spark.process(spark_session, sink, settings(coordinator, unique_name)) as query:
        wait_for("further batches are refused", lambda: batches_of(query) > 1, within_s=WITHIN_S)
        assert query.streaming.exception() is None
    assert overtaken == [1]
    assert totals_in(connect) == {}
    assert rows(connect, "SELECT * FROM rota_staging_amount_name") == []
    assert set(rows(connect, "SELECT next_offset, member_id FROM rota_offsets")) == {(None, later.member_id)}


def cut_off(database: str, times: int) -> SqlSink:
    """Return a sink of PostgreSQL, which closes the connections of the first transactions, as of a driver that sleeps in one."""
    connect = with_totals(lambda: psycopg.connect(database))
    with closing(connect()) as connection:
        connection.execute("CREATE SEQUENCE merges")
        connection.commit()
    cut = f"SELECT CASE WHEN nextval('merges') <= {times} THEN pg_terminate_backend(pg_backend_pid()) END"
    return SqlSink(connect, values_as_numbers, {"name": "TEXT", "amount": "BIGINT"}, [MERGE, cut])


def test_a_batch_whose_connection_the_database_closes_is_processed_again(
    spark_session: SparkSession, coordinator: Coordinator, database: str, unique_name: str
) -> None:
    totals = fill(coordinator, unique_name)
    sink = cut_off(database, 1)
    with rota_spark.process(spark_session, sink, settings(coordinator, unique_name)) as query:
        ends = {(unique_name, number): RECORDS for number in range(PARTITIONS)}
        wait_for(
            "all is committed",
            lambda: committed(coordinator.address, unique_name) == ends,
            within_s=WITHIN_S,
        )
        assert query.streaming.exception() is None
    assert totals_in(lambda: psycopg.connect(database)) == totals


def test_a_second_connection_in_a_row_that_the_database_closes_fails_the_query(
    spark_session: SparkSession, coordinator: Coordinator, database: str, unique_name: str
) -> None:
    fill(coordinator, unique_name)
    sink = cut_off(database, 2)
    with (
        rota_spark.process(spark_session, sink, settings(coordinator, unique_name)) as query,
        pytest.raises(StreamingQueryException, match="the database has closed the connection of the batch"),
    ):
        query.await_termination(WITHIN_S)
    assert totals_in(lambda: psycopg.connect(database)) == {}


def test_a_sink_that_is_full_or_whose_schema_has_changed_fails_the_query_and_stores_nothing(
    spark_session: SparkSession, coordinator: Coordinator, tmp_path: Path, unique_name: str
) -> None:
    fill(coordinator, unique_name)
    of = settings(coordinator, unique_name)
    file = str(tmp_path / "sink.db")
    connect = with_totals(to_sqlite(file))

    def full() -> sqlite3.Connection:
        connection: sqlite3.Connection = to_sqlite(file)()
        connection.execute("PRAGMA max_page_count = 1")  # no less than it has now
        return connection

    def repeated(records: DataFrame) -> DataFrame:
        return records.selectExpr("repeat('x', 10000) AS name", "CAST(1 AS BIGINT) AS amount")

    columns = {"name": "TEXT", "amount": "BIGINT"}
    with closing(connect()) as connection:
        sink_of(connect)._store(connection)
    with pytest.raises(
        StreamingQueryException, match=r"database or disk is full.*check the room of the database"
    ):
        run(spark_session, SqlSink(full, repeated, columns, MERGE), of)
    with closing(connect()) as connection:
        connection.execute("ALTER TABLE totals RENAME COLUMN amount TO total")
    with pytest.raises(
        StreamingQueryException,
        match=r"no such column: t\.amount.*nothing of the batch is stored or committed",
    ):
        run(spark_session, sink_of(connect), of)
    assert committed(coordinator.address, unique_name) == {}
    assert (
        rows(connect, "SELECT * FROM totals") == rows(connect, "SELECT * FROM rota_staging_amount_name") == []
    )


def test_executors_that_reach_another_database_than_the_driver_fail_the_query(
    spark_session: SparkSession, coordinator: Coordinator, tmp_path: Path, unique_name: str
) -> None:
    fill(coordinator, unique_name)
    here, there = (to_sqlite(str(tmp_path / name)) for name in ("here.db", "there.db"))
    for connect in (here, there):
        with_totals(connect)
        sink_of(connect)._store(connect())

    def divided() -> object:
        return (here if TaskContext.get() is None else there)()

    sink = sink_of(divided)
    with pytest.raises(
        StreamingQueryException, match="must reach the same database in the driver and on every executor"
    ):
        run(spark_session, sink, settings(coordinator, unique_name))
    assert totals_in(here) == totals_in(there) == {}
