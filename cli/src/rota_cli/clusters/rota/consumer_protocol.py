"""
Decode subscriptions and assignments of Kafka's consumer protocol.

A group may have members of other makes, and of versions that are not known yet: what cannot be read is not told, and
never ends a command.
"""

import struct
from collections.abc import Sequence

from rota.records import TopicPartition
from rota_cli.clusters.model import Subscription

INT16, INT32 = struct.Struct(">h"), struct.Struct(">i")


class Malformed(ValueError):
    """Bytes that end too early, or count what cannot be there."""


class _Reader:
    """Takes one element after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def number(self, kind: struct.Struct) -> int:
        return int(kind.unpack(self._take(kind.size))[0])

    def count(self) -> int:
        found = self.number(INT32)
        if not 0 <= found <= self.left:
            raise Malformed(f"a list of {found} elements in {self.left} bytes")
        return found

    def text(self) -> str:
        return self._take(self.number(INT16)).decode()

    def blob(self) -> bytes:
        length = self.number(INT32)
        return b"" if length == -1 else self._take(length)

    def partitions(self) -> list[TopicPartition]:
        found = []
        for _ in range(self.count()):
            topic = self.text()
            found += [TopicPartition(topic, self.number(INT32)) for _ in range(self.count())]
        return found

    def _take(self, length: int) -> bytes:
        if not 0 <= length <= self.left:
            raise Malformed(f"{length} bytes of {self.left}")
        self._at += length
        return self._data[self._at - length : self._at]


def decode_subscription(data: bytes) -> Subscription | None:
    """Decode a subscription; None if malformed. Fields that its version lacks keep their defaults."""
    reader = _Reader(data)
    try:
        version = reader.number(INT16)
        topics = [reader.text() for _ in range(reader.count())]
        reader.blob()
        # Some clients name a version and leave out what it adds.
        owned = reader.partitions() if version >= 1 and reader.left else []
        generation = reader.number(INT32) if version >= 2 and reader.left else -1
    except (Malformed, UnicodeDecodeError):
        return None
    return Subscription(topics, owned, generation)


def decode_assignment(assignment: bytes) -> Sequence[TopicPartition]:
    """Decode an assignment; empty if malformed, or if the leader assigned nothing."""
    if not assignment:
        return []
    reader = _Reader(assignment)
    try:
        reader.number(INT16)
        return sorted(reader.partitions())
    except (Malformed, UnicodeDecodeError):
        return []
