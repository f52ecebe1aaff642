"""The columns of `format("rota")`, and Arrow batches of them."""

from collections.abc import Iterator, Sequence
from itertools import takewhile
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
    from rota.records import Headers

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


class Columns:
    """Collects records of a partition in columns, and gives Arrow batches of exactly Spark's Arrow schema."""

    def __init__(self) -> None:
        # Spark's own conversion: it compares the first batch with it, names, types and nullability.
        from pyspark.sql.pandas.types import to_arrow_schema

        self._schema = to_arrow_schema(SCHEMA, timezone="UTC")

    def batches(self, fetched: Sequence["Records"], end: int) -> Iterator["pyarrow.RecordBatch"]:
        """
        Yield Arrow batches of what was fetched of one partition, before the offset `end`.

        A record that was sent alone is a batch of its own in the log; its neighbours share its Arrow batch, which costs far more than a record.
        """
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        offsets: list[int] = []
        timestamps_ms: list[int] = []
        headers: list[Headers] = []
        # A batch behind the end is not decompressed.
        for records in takewhile(lambda each: each.base_offset < end, fetched):
            part = slice(end - records.base_offset)
            keys += records.keys[part]
            values += records.values[part]
            offsets += range(records.base_offset, records.next_offset)[part]
            timestamps_ms += records.timestamps_ms[part]
            headers += records.headers[part]
        for start in range(0, len(offsets), RECORDS_MAX):
            part = slice(start, start + RECORDS_MAX)
            yield self.batch(
                fetched[0].topic,
                fetched[0].partition,
                (
                    keys[part],
                    values[part],
                    offsets[part],
                    timestamps_ms[part],
                    [
                        [{"key": name, "value": value} for name, value in each] or None
                        for each in headers[part]
                    ],
                ),
            )

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
