"""Values of confluent-kafka's interface: messages, partitions with offsets, errors, configurations. Used by consumer and producer."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rota import errors
from rota.offsets import OffsetAndMetadata
from rota.parameters import KafkaParameters
from rota.records import Headers
from rota.records import TopicPartition as Partition

OFFSET_BEGINNING = -2
OFFSET_END = -1
OFFSET_STORED = -1000
OFFSET_INVALID = -1001
TIMESTAMP_CREATE_TIME = 1

KafkaException = errors.RotaError
KafkaError = errors.RotaError
"""Both are the base of the SDK's errors, with `code`, `name`, `retriable` and `fatal` as attributes."""


@dataclass(order=True, unsafe_hash=True, slots=True)
class TopicPartition:
    """A partition, with an offset for calls that take or return one. Two are equal if topic and partition are."""

    topic: str
    partition: int = -1
    # An offset, one of the OFFSET_ constants, or a timestamp in ms for `offsets_for_times`.
    offset: int = field(default=OFFSET_INVALID, compare=False)
    metadata: str | None = field(default=None, compare=False)
    leader_epoch: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition of a topic."""

    id: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic with its partitions by number. `error` is None, or says that the topic does not exist."""

    topic: str
    partitions: Mapping[int, PartitionMetadata]
    error: errors.RotaError | None = None


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """Topics by name."""

    topics: Mapping[str, TopicMetadata]


@dataclass(frozen=True, slots=True)
class _Content:
    """Fields of a message. Invariant: offset and timestamp are -1 where they are unknown."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Headers


class Message:
    """A consumed record, or a produced one with its outcome. Key and value are bytes or None."""

    __slots__ = ("_content", "_error")

    def __init__(self, content: Any, error: errors.RotaError | None = None) -> None:  # noqa: ANN401
        """Wrap a `rota.Record`, or an object with its fields."""
        self._content = content
        self._error = error

    @classmethod
    def produced(cls, topic: str, key: object, value: object, headers: Headers) -> "Message":
        """Create a message whose partition, offset and timestamp are not known yet."""
        return cls(_Content(topic, -1, -1, -1, key, value, headers))

    def with_outcome(
        self, partition: int, offset: int, timestamp_ms: int, error: errors.RotaError | None
    ) -> "Message":
        """Return this message as it was written, or with the error that kept it from being written."""
        given = self._content
        content = _Content(
            given.topic, partition, offset, timestamp_ms, given.key, given.value, given.headers
        )
        return Message(content, error)

    def topic(self) -> str:
        """Return the topic."""
        topic: str = self._content.topic
        return topic

    def partition(self) -> int:
        """Return the partition."""
        partition: int = self._content.partition
        return partition

    def offset(self) -> int:
        """Return the offset."""
        offset: int = self._content.offset
        return offset

    def key(self) -> Any:  # noqa: ANN401  whatever a deserializer makes
        """Return the key."""
        return self._content.key

    def value(self) -> Any:  # noqa: ANN401  the same
        """Return the value."""
        return self._content.value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Return the headers; None if there are none."""
        return list(self._content.headers) or None

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the timestamp, always `TIMESTAMP_CREATE_TIME`, and milliseconds since the epoch."""
        return TIMESTAMP_CREATE_TIME, self._content.timestamp_ms

    def error(self) -> Any:  # noqa: ANN401  an application may pass it to KafkaException
        """Return the `rota.errors.RotaError` of a produced record that was not written, or None. Consumers raise theirs."""
        return self._error

    def __len__(self) -> int:
        return len(self.value() or b"")


def settings_of(config: Mapping[str, Any], kafka: KafkaParameters) -> dict[str, Any]:
    """Return a configuration under the names of Rota's settings; what it does not know, Rota's constructor refuses."""
    names = {name: name.replace(".", "_") for name in config}
    return {kafka.renamed.get(name, name): config[dotted] for dotted, name in names.items()}


def milliseconds(timeout: float | None) -> float:
    """Convert seconds; None and -1 wait without a limit."""
    return math.inf if timeout is None or timeout < 0 else timeout * 1000


def pairs(partitions: Iterable[TopicPartition]) -> list[Partition]:
    """Return the partitions without their offsets."""
    return [Partition(each.topic, each.partition) for each in partitions]


def offsets_in(partitions: Iterable[TopicPartition]) -> dict[Partition, OffsetAndMetadata]:
    """Return the offsets to commit, by partition. Raises InvalidArgument where one is missing."""
    found: dict[Partition, OffsetAndMetadata] = {}
    for each in partitions:
        if each.offset < 0:
            raise errors.InvalidArgument(
                f"{each.topic}[{each.partition}] has no offset to commit: use the next offset to read, 0 or more"
            )
        found[Partition(each.topic, each.partition)] = OffsetAndMetadata(each.offset, each.metadata or "")
    return found
