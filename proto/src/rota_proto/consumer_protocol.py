"""
Decode Kafka's consumer protocol: the subscriptions and assignments that members exchange through the coordinator.

The sidecar's leader decodes the subscriptions of all members and each member its assignment; the coordinator decodes
both to learn topics and owners; the CLI decodes them for display. The bytes come from any client in any version, so
every length is checked before it is used. Partition numbers are decoded into one array for each topic, never one by
one: a leader decodes a million of them. Encoding is the sidecar's alone.

    subscription = version INT16, topics [STRING], user data NULLABLE_BYTES, since version 1: owned [STRING [INT32]],
                   since version 2: generation INT32, since version 3: rack NULLABLE_STRING
    assignment   = version INT16, partitions [STRING [INT32]], user data NULLABLE_BYTES
"""

import struct
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# The protocol type of groups whose members use these messages.
PROTOCOL_TYPE = "consumer"
# The newest version that is known here. Later versions append fields, so their first fields decode as those of this one.
VERSION = 3
NO_GENERATION = -1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NO_TOPICS = _INT32.pack(0)
_NULL_STRING = _INT16.pack(-1)
_SWAPPED = sys.byteorder == "little"


class Malformed(ValueError):
    """Bytes violate the protocol; the message says how and at which byte."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Subscribed topics and owned partitions of a member. Invariant: fields that its version lacks have their defaults."""

    topics: Sequence[str]
    user_data: bytes = b""
    # Partition numbers by topic.
    owned: Mapping[str, Sequence[int]] = field(default_factory=dict)
    # The generation in which the member owned them; NO_GENERATION: unknown.
    generation: int = NO_GENERATION
    rack: str = ""


class Reader:
    """
    Decodes the elements of one message in their order. Raises Malformed.

    Invariant: 0 <= `_at` <= size of the data; `_at` is the position of the next element in bytes.
    """

    def __init__(self, data: bytes, kind: str) -> None:
        self._data = data
        # "subscription", "assignment" or "user data"; for error messages.
        self._kind = kind
        self._at = 0

    @property
    def left(self) -> int:
        """Number of bytes that remain."""
        return len(self._data) - self._at

    def malformed(self, why: str) -> Malformed:
        """Return the error for the element at the current position."""
        return Malformed(f"malformed {self._kind} of {len(self._data)} bytes: {why} at byte {self._at}")

    def int16(self) -> int:
        """Decode an INT16."""
        return int(_INT16.unpack(self._take(2))[0])

    def int32(self) -> int:
        """Decode an INT32."""
        return int(_INT32.unpack(self._take(4))[0])

    def string(self) -> str:
        """Decode a STRING."""
        begin = self._at + 2
        try:
            (length,) = _INT16.unpack_from(self._data, self._at)
            end = begin + length
            if length < 0 or end > len(self._data):
                raise self.malformed(f"a string of {length} bytes with {self.left - 2} bytes left")
            found = self._data[begin:end].decode()
        except struct.error:
            raise self.malformed("no length of a string") from None
        except UnicodeDecodeError:
            raise self.malformed("invalid UTF-8 in a string") from None
        self._at = end
        return found

    def nullable_string(self) -> str | None:
        """Decode a NULLABLE_STRING."""
        if self._data.startswith(_NULL_STRING, self._at):
            self._at += len(_NULL_STRING)
            return None
        return self.string()

    def nullable_bytes(self) -> bytes:
        """Decode NULLABLE_BYTES; null is returned as empty bytes."""
        length = self.int32()
        return b"" if length == -1 else self._take(length)

    def count(self) -> int:
        """Decode the length of an array; each element has at least one byte."""
        found = self.int32()
        if not 0 <= found <= self.left:
            raise self.malformed(f"an array of {found} elements with {self.left} bytes left")
        return found

    def strings(self) -> list[str]:
        """Decode an array of strings."""
        return [self.string() for _ in range(self.count())]

    def partitions(self) -> Mapping[str, Sequence[int]]:
        """Decode partition numbers by topic; the numbers of a topic that occurs twice are concatenated."""
        if self._data.startswith(_NO_TOPICS, self._at):
            self._at += len(_NO_TOPICS)
            return {}
        return self._arrays_by_topic()

    def _arrays_by_topic(self) -> "dict[str, array[int]]":
        found: dict[str, array[int]] = {}
        for _ in range(self.count()):
            topic, numbers = self.string(), self._int32_array()
            if topic in found:
                found[topic].extend(numbers)
            else:
                found[topic] = numbers
        return found

    def _int32_array(self) -> "array[int]":
        begin = self._at + 4
        try:
            (count,) = _INT32.unpack_from(self._data, self._at)
        except struct.error:
            raise self.malformed("no length of an array") from None
        end = begin + 4 * count
        if count < 0 or end > len(self._data):
            raise self.malformed(f"an array of {count} numbers with {self.left - 4} bytes left")
        self._at = end
        numbers = array("i", self._data[begin:end])
        if _SWAPPED:
            numbers.byteswap()
        return numbers

    def _take(self, length: int) -> bytes:
        begin, end = self._at, self._at + length
        if length < 0 or end > len(self._data):
            raise self.malformed(f"{length} bytes expected with {self.left} bytes left")
        self._at = end
        return self._data[begin:end]


def decode_subscription(reader: Reader, version: int) -> Subscription:
    """
    Decode the fields of a subscription behind its version; those that the version lacks keep their defaults.

    Some clients name a version and omit the fields that it adds (sarama did for years): a field that would begin where
    the bytes end keeps its default too. Fields of later versions are left to the caller.
    """
    topics = reader.strings()
    user_data = reader.nullable_bytes()
    owned = reader.partitions() if version >= 1 and reader.left else {}
    generation = reader.int32() if version >= 2 and reader.left else NO_GENERATION
    rack = reader.nullable_string() if version >= 3 and reader.left else None
    return Subscription(topics, user_data, owned, generation, rack or "")
