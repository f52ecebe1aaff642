"""A driver that sums the values of a topic into SQLite, and kills itself in its second batch, after the sink's commit."""

import os
import signal
import sqlite3
import sys
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from typing_extensions import override

import rota_spark
from rota_spark import Settings, SqlSink
from rota_spark.membership import Batch, Member
from tests.support.sidecar import QUICK

MERGE = (
    "INSERT INTO totals AS t SELECT partition, amount FROM {staged} WHERE true "
    "ON CONFLICT (partition) DO UPDATE SET amount = t.amount + excluded.amount"
)
RECORDS_MAX = 300


def connecting(file: str) -> Callable[[], sqlite3.Connection]:
    """Return a function that connects to a file."""
    return lambda: sqlite3.connect(file, isolation_level=None, timeout=30)


def sums(records: DataFrame) -> DataFrame:
    """Sum the values of each partition."""
    values = records.withColumn("value", records.value.cast("string").cast("bigint"))
    return values.groupBy("partition").sum("value").withColumnRenamed("sum(value)", "amount")


def sink(file: str, kind: type[SqlSink] = SqlSink) -> SqlSink:
    """The sink of the totals in a file."""
    return kind(connecting(file), sums, {"partition": "INTEGER", "amount": "BIGINT"}, MERGE)


def settings(address: str, group: str) -> Settings:
    """Settings of a group that is named like its topic."""
    return Settings(
        bootstrap_servers=address,
        group_id=group,
        topics=[group],
        max_records_per_batch=RECORDS_MAX,
        sidecar_flags=QUICK,
    )


class KillsTheDriver(SqlSink):
    """The first batch is committed, the second one in the sink only."""

    batches = 0

    @override
    def write(self, records: DataFrame, batch: Batch, member: Member) -> bool:
        is_stored = super().write(records, batch, member)
        self.batches += 1
        if self.batches == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return is_stored


def main(address: str, group: str, file: str) -> None:
    """Run until the end, which is a kill."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    with rota_spark.process(spark, sink(file, KillsTheDriver), settings(address, group)) as query:
        query.await_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
