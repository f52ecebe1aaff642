"""Values of the public API: records, partitions, and the metadata of sent records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple

from typing_extensions import TypeVar

Header = tuple[str, bytes | None]
Headers = Sequence[Header]


Key = TypeVar("Key", default=bytes | None)
Value = TypeVar("Value", default=bytes | None)


class TopicPartition(NamedTuple):
    """A partition of a topic. Methods accept a plain `("orders", 3)` as well."""

    topic: str
    partition: int


class RecordMetadata(NamedTuple):
    """
    Partition, offset and timestamp of a sent record. The offset is -1 if it is unknown: with `acks=0`, and for a
    duplicate of a record in the log.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def timestamp(self) -> int:
        """`timestamp_ms`, under the name of Kafka's clients."""
        return self.timestamp_ms


class Record(NamedTuple, Generic[Key, Value]):
    """A consumed record. Key and value are bytes or None, or the results of a consumer's deserializers."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Key
    value: Value
    headers: Headers
    # Number of deliveries of the record to applications of its group, this one included, as the sidecar counts them; 0
    # for a record that no sidecar delivered, as with `LogReader`.
    deliveries: int = 0

    @property
    def timestamp(self) -> int:
        """`timestamp_ms`, under the name of Kafka's clients."""
        return self.timestamp_ms


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record before it is sent, as interceptors see it: key and value are the application's objects."""

    topic: str
    value: object = None
    key: object = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers | None = None
