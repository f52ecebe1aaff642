"""What goes in and comes out: records, where they lie, and who says so. Users see these values everywhere."""

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
    Where a record that was sent lies. The offset is -1 when nobody knows it: with `acks=0`, and for a record that was
    found to be in the log already.
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
