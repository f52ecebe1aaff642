"""
Small jobs, run once per machine, whose driver loads the classes that later Javas find in an archive.

A job of a cluster, and a stream as tests have them: a Python data source, a function for each batch, a shuffle, and tasks in Python.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType
from typing_extensions import override

SCHEMA = "key binary, value string"
END = 2


class Stream(DataSourceStreamReader):
    """Two records in all."""

    @override
    def initialOffset(self) -> dict[str, int]:
        return {"next": 0}

    @override
    def latestOffset(self, *_limits: object) -> dict[str, int]:
        return {"next": END}

    @override
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(start["next"], end["next"])]

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        columns = {"key": [b"key"], "value": [str(partition.value)]}
        yield pa.RecordBatch.from_pydict(columns, pa.schema({"key": pa.binary(), "value": pa.string()}))

    @override
    def commit(self, end: dict[str, int]) -> None:
        pass


class Source(DataSource):
    """A source of the stream."""

    @classmethod
    @override
    def name(cls) -> str:
        return "warm-up"

    @override
    def schema(self) -> str:
        return SCHEMA

    @override
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return Stream()


def count(records: DataFrame, _number: int) -> None:
    """Sum the values of each key, once in tasks and once in the driver."""
    numbers = records.selectExpr("CAST(key AS STRING) AS name", "CAST(value AS BIGINT) AS amount")
    sums = numbers.groupBy("name").agg({"amount": "sum"}).selectExpr("name", "`sum(amount)` AS amount")
    sums.rdd.mapPartitions(list).collect()
    sums.collect()


session = SparkSession.builder.getOrCreate()
session.sparkContext.parallelize([1, 2], 2).map(str).collect()
session.stop()
# Tasks in the driver's own Java, which keeps the classes of executors too.
session = SparkSession.builder.master("local[1]").getOrCreate()
session.dataSource.register(Source)
records = session.readStream.format(Source.name()).load()
records.writeStream.foreachBatch(count).trigger(availableNow=True).start().awaitTermination()
session.stop()
