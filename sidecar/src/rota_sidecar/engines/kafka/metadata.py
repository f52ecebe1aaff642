"""
Kafka's answer to Metadata, version 12, read by hand for `topics.py`: a cluster's hundred thousand partitions pass
through here each time somebody looks for new topics, and an object for each of them would cost a second and 40 MB.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from rota_sidecar.core.assignors.model import Topic

VERSION = 12
SHORT, INT = struct.Struct(">h"), struct.Struct(">i")
TOPIC_ID_BYTES = 16
NO_TOPIC_ID = bytes(TOPIC_ID_BYTES)
# Of a partition: error, index, leader, leader epoch, before the lists of its replicas.
PARTITION_HEAD = struct.Struct(">hiii")
# Above, a length takes more than one byte.
SHORT_LENGTHS = 0x80

Racks = Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Described:
    """One topic of the answer."""

    name: str
    error_code: int
    is_internal: bool
    topic: Topic


@dataclass(frozen=True, slots=True)
class Metadata:
    """The answer, as far as it is of use."""

    topics: tuple[Described, ...]

    @classmethod
    def decode(cls, frame: bytes, version: int = VERSION, *, header: bool = True) -> "Metadata":
        """Raises what `UNREADABLE` of `connection.py` names."""
        if version != VERSION or not header:
            raise ValueError(f"only whole answers of version {VERSION} are read here")
        reader = _Reader(frame)
        reader.skip(INT.size)  # the number of the request
        reader.skip_tags()
        reader.skip(INT.size)  # throttled for so long
        racks: dict[int, str] = {}
        for _ in range(reader.length()):
            node = reader.integer()
            reader.text()
            reader.skip(INT.size)
            rack = reader.text()
            reader.skip_tags()
            if rack:
                racks[node] = rack
        reader.text()  # cluster
        reader.skip(INT.size)  # controller
        return cls(tuple(_topic(reader, racks) for _ in range(reader.length())))


def _topic(reader: "_Reader", racks: Racks) -> Described:
    (error_code,) = SHORT.unpack(reader.take(SHORT.size))
    name = reader.text()
    topic_id = reader.take(TOPIC_ID_BYTES)
    is_internal = reader.take(1) != b"\0"
    partitions = reader.length()
    by_number = reader.replicas_racks(partitions, racks)
    reader.skip(INT.size)  # what we may do with it
    reader.skip_tags()
    topic = Topic(partitions, by_number, b"" if topic_id == NO_TOPIC_ID else topic_id)
    return Described(name, error_code, is_internal, topic)


class _Reader:
    """Goes through the bytes of an answer, in Kafka's flexible encoding."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next bytes, all of them."""
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise IndexError("the answer ends too soon")
        self._at += size
        return taken

    def skip(self, size: int) -> None:
        """What we have no use for."""
        self.take(size)

    def integer(self) -> int:
        """A number of 32 bits."""
        (number,) = INT.unpack(self.take(INT.size))
        return int(number)

    def varint(self) -> int:
        """A number of seven bits a byte."""
        number = shift = 0
        while (byte := self._data[self._at]) >= SHORT_LENGTHS:
            number |= (byte & (SHORT_LENGTHS - 1)) << shift
            shift += 7
            self._at += 1
        self._at += 1
        return number | byte << shift

    def length(self) -> int:
        """Of a list or a text; null and empty are the same."""
        found = max(self.varint() - 1, 0)
        # Each entry has a byte at least. Else a wrong length would keep us busy for long.
        if found > len(self._data) - self._at:
            raise IndexError("the answer ends too soon")
        return found

    def text(self) -> str:
        """A text; null is empty."""
        return self.take(self.length()).decode()

    def skip_tags(self) -> None:
        """What newer brokers may add."""
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())

    def replicas_racks(self, partitions: int, racks: Racks) -> tuple[frozenset[str], ...]:
        """Those of each partition, by its number; nothing where no broker has a rack."""
        # Partitions with the same replicas share a set.
        sets: dict[bytes, frozenset[str]] = {}
        by_number: list[frozenset[str]] = [frozenset()] * partitions
        for _ in range(partitions):
            number, replicas = self._short_partition() or self._partition()
            if replicas not in sets:
                nodes = (node for (node,) in INT.iter_unpack(replicas))
                sets[replicas] = frozenset(racks[node] for node in nodes if node in racks)
            by_number[number] = sets[replicas]
        return tuple(by_number) if racks else ()

    def _partition(self) -> tuple[int, bytes]:
        """The number of a partition, and its replicas as they stand there."""
        _, number, _, _ = PARTITION_HEAD.unpack(self.take(PARTITION_HEAD.size))
        replicas = self.take(self.length() * INT.size)
        self.skip(self.length() * INT.size)  # in sync
        self.skip(self.length() * INT.size)  # offline
        self.skip_tags()
        return number, replicas

    def _short_partition(self) -> tuple[int, bytes] | None:
        """The same in a third of the time, when each of its lists has a length of one byte, and it has no tags."""
        data, at = self._data, self._at + PARTITION_HEAD.size
        # Lengths are counted from 1, and 0 is null.
        if not 0 < data[at] < SHORT_LENGTHS:
            return None
        in_sync = at + data[at] * INT.size - 3
        if not 0 < data[in_sync] < SHORT_LENGTHS:
            return None
        offline = in_sync + data[in_sync] * INT.size - 3
        if not 0 < data[offline] < SHORT_LENGTHS:
            return None
        tags = offline + data[offline] * INT.size - 3
        if data[tags]:
            return None
        (number,) = INT.unpack_from(data, at - 12)
        self._at = tags + 1
        return number, data[at + 1 : in_sync]
