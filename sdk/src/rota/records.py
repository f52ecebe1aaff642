"""Values that users see everywhere: records, partitions, and the metadata of sent records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple

from typing_extensions import TypeVar

Header = tuple[str, bytes | None]
Headers = Sequence[Header]


Key = TypeVar("Key", default=bytes | None)
Value = TypeVar("Value", default=bytes | None)


class TopicPartition(NamedTuple):
    """A partition of a topic. A plain `("orders", 3)` does as well."""

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


class Record(NamedTuple, Generic[Key, Value]):
    """A record as it was read. Key and value are bytes or None, or what a consumer's deserializers make of them."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Key
    value: Value
    headers: Headers


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record before it is sent, as interceptors see it: key and value are what the application gave."""

    topic: str
    value: object = None
    key: object = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers | None = None
