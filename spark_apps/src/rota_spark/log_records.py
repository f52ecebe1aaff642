"""
Records as an executor reads them: ranges of offsets, with credentials of the executor's environment.

A driver's batch read looks up its ranges here as well. `rota_records` and `kafka_records` implement it. A server that is away is
waited for; offsets whose records were deleted fail the read, as Spark's Kafka source does by default: nothing is skipped silently.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, Self

from rota_spark.core.plan import Range

if TYPE_CHECKING:
    import pyarrow

# Seconds for which a server may be away before a task fails: longer than the restart of one.
AWAY_MAX_S = 60.0


class ReadFailed(Exception):
    """The records of a range cannot be read; the message has the remedy."""


def gone(wanted: Range) -> str:
    """Return the error for a partition of a topic that was deleted."""
    return (
        f"{wanted.topic}-{wanted.partition} does not exist any more, so its records of the batch are lost: remove {wanted.topic} from the "
        "group's topics, or create it again, and start the query again"
    )


class LogRecords(Protocol):
    """A connection to the records."""

    def ranges(self, topics: Sequence[str]) -> list[Range]:
        """Return all offsets that the topics have now."""
        ...

    def read(self, wanted: Range) -> Iterator["pyarrow.RecordBatch"]:
        """Read the records of a range in order."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
