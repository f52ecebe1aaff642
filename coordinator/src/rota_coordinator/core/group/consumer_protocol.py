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
    try:
        reader.int16()
        return reader.partitions()
    except (struct.error, UnicodeDecodeError, ValueError):
        return None


class Claim(NamedTuple):
    """The partitions that a member claims to own, and the generation of the claim; -1 if unknown."""

    partitions: frozenset[TopicPartition]
    generation: int


NO_CLAIM = Claim(frozenset(), -1)


def claimed_partitions(metadata: bytes) -> Claim:
    """The claim in a subscription; none in one of version 0, or when the bytes are no subscription."""
    reader = _Reader(metadata)
    try:
        version = reader.int16()
        for _ in range(reader.count()):
            reader.string()
        reader.skip()
        if version < 1:
            return NO_CLAIM
        partitions = reader.partitions()
        return Claim(partitions, reader.int32() if version > 1 else -1)
    except (struct.error, UnicodeDecodeError, ValueError):
        return NO_CLAIM


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

    def skip(self) -> None:
        """Bytes that are no concern of the coordinator's; a negative length is that of none."""
        length = self.int32()
        if length > len(self._data) - self._at:
            raise ValueError("bytes are shorter than they say")
        self._at += max(length, 0)

    def partitions(self) -> frozenset[TopicPartition]:
        """Topics, each with the numbers of partitions."""
        found: set[TopicPartition] = set()
        for _ in range(self.count()):
            topic = self.string()
            found.update(TopicPartition(topic, self.int32()) for _ in range(self.count()))
        return frozenset(found)
