"""
The little that the coordinator reads of Kafka's consumer protocol: which topics a member subscribes to, and which
partitions it was given. The bytes belong to the members; what cannot be read is left alone.
"""

import struct
from typing import NamedTuple

PROTOCOL_TYPE = "consumer"


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a subscription, of any version; None when the bytes are no subscription."""
    reader = _Reader(metadata)
    try:
        reader.int16()  # the version: later ones only add fields at the end
        return frozenset(reader.string() for _ in range(reader.count()))
    except (struct.error, UnicodeDecodeError, ValueError):
        return None


def assigned_partitions(assignment: bytes) -> frozenset[TopicPartition] | None:
    """The partitions of an assignment, of any version; None when the bytes are no assignment."""
    if not assignment:
        return frozenset()
    reader = _Reader(assignment)
    partitions: set[TopicPartition] = set()
    try:
        reader.int16()
        for _ in range(reader.count()):
            topic = reader.string()
            partitions.update(TopicPartition(topic, reader.int32()) for _ in range(reader.count()))
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return frozenset(partitions)


class _Reader:
    """Kafka's primitive types, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        (value,) = struct.unpack_from(">h", self._data, self._at)
        self._at += 2
        return int(value)

    def int32(self) -> int:
        (value,) = struct.unpack_from(">i", self._data, self._at)
        self._at += 4
        return int(value)

    def count(self) -> int:
        """A list's length, bounded by the bytes that are left."""
        count = self.int32()
        if not 0 <= count <= len(self._data) - self._at:
            raise ValueError("a list is longer than its bytes")
        return count

    def string(self) -> str:
        length = self.int16()
        if not 0 <= length <= len(self._data) - self._at:
            raise ValueError("a string is longer than its bytes")
        self._at += length
        return self._data[self._at - length : self._at].decode()
