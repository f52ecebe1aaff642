"""
Elements of Kafka's consumer protocol: integers, strings, and partitions by topic.

`subscription`, `assignment` and `user_data` are written in them. Numbers of partitions go in and out as one array for
each topic, never one by one: a leader reads a million of them.
"""

import struct
import sys
from array import array
from collections.abc import Mapping, Sequence

from typing_extensions import override

from rota_proto.consumer_protocol import Malformed, Reader
from rota_sidecar.core.assignors.flat_assignment import FlatAssignment
from rota_sidecar.core.assignors.packed_partitions import PackedPartitions
from rota_sidecar.core.assignors.range import RangeAssignment
from rota_sidecar.core.consumer_protocol.shared_layouts import SharedLayouts

TEXT_BYTES_MAX = 32_767
INT32_MAX = 2**31 - 1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ONE = struct.Struct(">ii")
_NO_TOPICS = _INT32.pack(0)
_SWAPPED = sys.byteorder == "little"


class SharedReader(Reader):
    """Reader of the messages of one rebalance: topics and partitions that an earlier message had come from `shared`."""

    def __init__(self, data: bytes, kind: str, shared: SharedLayouts) -> None:
        super().__init__(data, kind)
        self._shared = shared

    @override
    def strings(self) -> list[str]:
        known = self._shared.texts(self._data, self._at)
        if known is not None:
            self._at += len(known[0])
            return known[1]
        begin = self._at
        found = super().strings()
        self._shared.remember_texts(self._data[begin : self._at], found)
        return found

    @override
    def partitions(self) -> Mapping[str, Sequence[int]]:
        known = self._shared.lists(self._data, self._at)
        if known is not None:
            self._at += known[0]
            return known[1]
        begin, found = self._at, self._arrays_by_topic()
        section = self._data[begin : self._at]
        # Repeated topics and topics without numbers are encoded in another way than they were received.
        if found and _INT32.unpack_from(section)[0] == len(found) and all(found.values()):
            return self._shared.remember_lists(section, list(found), list(found.values()))
        return found


def reader_of(data: bytes, kind: str, shared: SharedLayouts | None) -> Reader:
    """Return a reader that uses `shared`; without it every element is decoded anew."""
    return Reader(data, kind) if shared is None else SharedReader(data, kind, shared)


def int16(value: int) -> bytes:
    return _INT16.pack(value)


def int32(value: int) -> bytes:
    return _INT32.pack(value)


def text(value: str) -> bytes:
    encoded = value.encode()
    if len(encoded) > TEXT_BYTES_MAX:
        raise Malformed(f"{value[:20]}… has {len(encoded)} bytes, Kafka allows {TEXT_BYTES_MAX}: shorten it")
    return _INT16.pack(len(encoded)) + encoded


def nullable_text(value: str) -> bytes:
    """A text; what is empty is null."""
    return text(value) if value else _INT16.pack(-1)


def blob(value: bytes) -> bytes:
    """Bytes; what is empty is null."""
    return _INT32.pack(len(value)) + value if value else _INT32.pack(-1)


def texts(values: Sequence[str]) -> bytes:
    return _INT32.pack(len(values)) + b"".join(map(text, values))


class TopicHeaders:
    """Encoded topic names, cached for all members of a rebalance."""

    def __init__(self) -> None:
        self._by_name: dict[str, bytes] = {}
        # By the identity of the list; the lists are kept, so that no other object gets the same id.
        self._by_names: dict[int, tuple[Sequence[str], list[bytes]]] = {}
        self._singles: list[bytes] = []

    def of(self, name: str) -> bytes:
        return self._by_name.get(name) or self._by_name.setdefault(name, text(name))

    def all_of(self, names: Sequence[str]) -> list[bytes]:
        """Return the encoded names of a list, cached by the identity of the list."""
        found = self._by_names.get(id(names))
        if found is None:
            found = self._by_names[id(names)] = names, list(map(self.of, names))
        return found[1]

    def singles(self, most: int) -> Sequence[bytes]:
        """Return the encoded one-element list of each partition number up to `most`."""
        self._singles += [_ONE.pack(1, number) for number in range(len(self._singles), most + 1)]
        return self._singles


def partitions(by_topic: Mapping[str, Sequence[int]], headers: TopicHeaders | None = None) -> bytes:
    """Encode partitions by topic; a topic without partitions is left out. `headers` caches encoded topic names."""
    headers = TopicHeaders() if headers is None else headers
    match by_topic:
        case PackedPartitions() if by_topic.written:
            return by_topic.written
        case RangeAssignment():
            return _range_assignment(by_topic, headers)
        case FlatAssignment() if (single := by_topic.one_of_each()) is not None:
            names, numbers = single
            parts = [_INT32.pack(len(names))] * (2 * len(names) + 1)
            parts[1::2] = headers.all_of(names)
            parts[2::2] = map(headers.singles(max(numbers)).__getitem__, numbers)
            return b"".join(parts)
        case _:
            return _one_by_one(by_topic, headers)


def _range_assignment(assignment: RangeAssignment, headers: TopicHeaders) -> bytes:
    parts, count = [b""], 0
    for names, numbers in assignment.by_shape():
        # The member has the same partitions of all these topics: they are encoded once, and inserted after each name.
        body = _body(numbers)
        parts += [body.join(headers.all_of(names)), body]
        count += len(names)
    parts[0] = _INT32.pack(count)
    return b"".join(parts)


def _one_by_one(by_topic: Mapping[str, Sequence[int]], headers: TopicHeaders) -> bytes:
    parts, topic = [b""], ""
    try:
        for topic, numbers in by_topic.items():
            body = _body(numbers)
            if body:
                parts.append(headers.of(topic) + body)
    except (OverflowError, struct.error):
        raise Malformed(f"{topic} has a partition above {INT32_MAX}, which Kafka cannot name") from None
    parts[0] = _INT32.pack(len(parts) - 1)
    return b"".join(parts)


def _body(numbers: Sequence[int]) -> bytes:
    if not len(numbers):
        return b""
    if len(numbers) == 1:
        return _ONE.pack(1, numbers[0])
    return _INT32.pack(len(numbers)) + _swapped(array("i", numbers))


def _swapped(numbers: "array[int]") -> bytes:
    # The caller passes a copy, so that the bytes are swapped in place.
    if _SWAPPED:
        numbers.byteswap()
    return numbers.tobytes()
