"""
A job without Rota: confluent-kafka inside of Spark's `mapInArrow`, as an application reads Kafka without a data source.

Each task reads whole partitions up to their end, and gives the columns of `format("rota")` in Arrow batches.
"""

from collections.abc import Iterator
from unittest import mock

import pyarrow
from confluent_kafka import Consumer, Message, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from rota_spark.columns import SCHEMA

# As many as in a batch of the data source.
BATCH = 10_000
WITHIN_S = 30.0
TUNED = {"fetch.queue.backoff.ms": 10, "auto.offset.reset": "earliest", "enable.auto.commit": False}


def read_without_rota(
    session: SparkSession, servers: str, topic: str, *, partitions: int, tasks: int
) -> DataFrame:
    """Return the records of a topic."""
    # Spark asks for pandas here, which neither `mapInArrow` nor this function uses.
    with mock.patch("pyspark.sql.pandas.functions.require_minimum_pandas_version"):
        return session.range(tasks, numPartitions=tasks).mapInArrow(
            # Tasks import this module: confluent-kafka's classes cannot be pickled.
            lambda numbers: read(numbers, servers, topic, range(0, partitions, tasks)),
            SCHEMA,
        )


def read(
    numbers: Iterator[pyarrow.RecordBatch], servers: str, topic: str, first: range
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the records of every `first.step`-th partition, from the task's number on."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", **TUNED})
    for batch in numbers:
        for task in batch.column(0).to_pylist():
            for number in range(task, first.stop, first.step):
                yield from _partition(consumer, topic, number)
    consumer.close()


def _partition(consumer: Consumer, topic: str, number: int) -> Iterator[pyarrow.RecordBatch]:
    offset, end = consumer.get_watermark_offsets(TopicPartition(topic, number), WITHIN_S)
    consumer.assign([TopicPartition(topic, number, offset)])
    while offset < end:
        messages = consumer.consume(min(BATCH, end - offset), WITHIN_S)
        if not messages:
            raise TimeoutError(f"{topic}-{number} has no records behind {offset} for {WITHIN_S:.0f} s")
        yield _columns(messages)
        offset += len(messages)
    consumer.unassign()


def _columns(messages: list[Message]) -> pyarrow.RecordBatch:
    rows = [
        (each.key(), each.value(), each.topic(), each.partition(), each.offset(), each.timestamp()[1] * 1000)
        for each in messages
    ]
    schema = to_arrow_schema(SCHEMA, timezone="UTC")
    columns = [*zip(*rows, strict=True), [each.headers() for each in messages]]
    return pyarrow.RecordBatch.from_arrays(
        [pyarrow.array(values, field.type) for values, field in zip(columns, schema, strict=True)],
        schema=schema,
    )
