"""The columns of `format("rota")`, and Arrow batches of them."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    import pyarrow

    from rota import Records

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("headers", ArrayType(HEADER)),
    ]
)
# As Spark 4.3 requires it.
ARROW_MAJOR_MIN = 18
# Records of an Arrow batch: enough for columns to pay, few enough for a worker's memory.
RECORDS_MAX = 10_000
# Columns of a log's batch: keys, values, offsets, timestamps, headers.
COLUMNS = 5


class Columns:
    """Collects records of a partition in columns, and gives Arrow batches of exactly Spark's Arrow schema."""

    def __init__(self) -> None:
        # Spark's own conversion: it compares the first batch with it, names, types and nullability.
        from pyspark.sql.pandas.types import to_arrow_schema

        self._schema = to_arrow_schema(SCHEMA, timezone="UTC")

    def batches(self, fetched: Sequence["Records"], end: int) -> Iterator["pyarrow.RecordBatch"]:
        """
        Yield Arrow batches of what was fetched of one partition, before the offset `end`.

        A record that was sent alone is a batch of its own in the log, and an Arrow batch costs as much as hundreds of records: neighbours share one.
        """
        gathered: list[list[object]] = [[] for _ in range(COLUMNS)]
        for records in fetched:
            columns = _columns_of(records, end)
            count, start = len(columns[0]), 0
            while start < count:
                stop = min(start + RECORDS_MAX - len(gathered[0]), count)
                for column, more in zip(gathered, columns, strict=True):
                    column += more[start:stop]
                start = stop
                if len(gathered[0]) == RECORDS_MAX:
                    yield self.batch(records.topic, records.partition, gathered)
                    gathered = [[] for _ in range(COLUMNS)]
        if gathered[0]:
            yield self.batch(fetched[0].topic, fetched[0].partition, gathered)

    def batch(self, topic: str, partition: int, columns: Sequence[Sequence[object]]) -> "pyarrow.RecordBatch":
        """Return one batch, of keys, values, offsets, timestamps in ms (None: none) and headers."""
        import pyarrow

        keys, values, offsets, timestamps_ms, headers = columns
        size = len(keys)
        types = {field.name: field.type for field in self._schema}
        return pyarrow.RecordBatch.from_arrays(
            [
                pyarrow.array(keys, types["key"]),
                pyarrow.array(values, types["value"]),
                pyarrow.repeat(pyarrow.scalar(topic, types["topic"]), size),
                pyarrow.repeat(pyarrow.scalar(partition, types["partition"]), size),
                pyarrow.array(offsets, types["offset"]),
                pyarrow.array(timestamps_ms, pyarrow.int64())
                .cast(pyarrow.timestamp("ms", tz="UTC"))
                .cast(types["timestamp"]),
                pyarrow.array(headers, types["headers"]),
            ],
            schema=self._schema,
        )


def _columns_of(records: "Records", end: int) -> Sequence[Sequence[object]]:
    """Return keys, values, offsets, timestamps and headers of the records before the offset `end`."""
    part = slice(0, max(end - records.base_offset, 0))
    return (
        records.keys[part],
        records.values[part],
        range(records.base_offset, records.next_offset)[part],
        records.timestamps_ms[part],
        [[{"key": name, "value": value} for name, value in each] or None for each in records.headers[part]],
    )


def arrow_problem(version: str | None) -> str:
    """Return what is wrong with a version of pyarrow, None if it is not installed; empty: nothing."""
    if version is None:
        found = "pyarrow is not installed"
    elif tuple(map(int, version.split(".")[:1])) < (ARROW_MAJOR_MIN,):
        found = f"pyarrow is {version}"
    else:
        return ""
    return (
        f"{found}, and Spark's workers need {ARROW_MAJOR_MIN} or newer to read from Rota: install it in the Python of the driver and "
        "the executors (PYSPARK_PYTHON)"
    )


def installed_arrow() -> str | None:
    """Return the version of pyarrow in this Python; None if it is not installed."""
    try:
        import pyarrow
    except ImportError:
        return None
    return str(pyarrow.__version__)
