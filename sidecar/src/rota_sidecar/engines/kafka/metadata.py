"""
A decoder of Kafka's Metadata response, version 12, for `topics.py` and for `python_client`.

It is written by hand because each search for new topics decodes all partitions of the cluster: for 100,000 of them the
generated decoder's objects would cost a second and 40 MB.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rota_sidecar.core.assignors.model import Topic
from rota_sidecar.engines.kafka.settings import Address

VERSION = 12
SHORT, INT = struct.Struct(">h"), struct.Struct(">i")
TOPIC_ID_BYTES = 16
NO_TOPIC_ID = bytes(TOPIC_ID_BYTES)
# The fields of a partition before the lists of its replicas: error, index, leader, leader epoch.
PARTITION_HEAD = struct.Struct(">hiii")
# The last two of them.
LEADER = struct.Struct(">ii")
# A varint from here on takes more than one byte.
SHORT_LENGTHS = 0x80

# The id of the leader of a partition that has none.
NO_LEADER = -1

Racks = Mapping[int, str]


class Leader(NamedTuple):
    """The broker that leads a partition, and the epoch of its leadership."""

    node: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Described:
    """A topic of the response."""

    name: str
    error_code: int
    is_internal: bool
    topic: Topic
    # The leader of each partition, by its number.
    leaders: Sequence[Leader] = ()


@dataclass(frozen=True, slots=True)
class Metadata:
    """The topics, the brokers and the cluster's id of a Metadata response; the other fields are skipped."""

    topics: tuple[Described, ...]
    # Empty: the broker has none.
    cluster_id: str = ""
    # The address of each broker, by its id.
    brokers: Mapping[int, Address] = field(default_factory=dict)

    @classmethod
    def decode(cls, frame: bytes, version: int = VERSION, *, header: bool = True) -> "Metadata":
        """Decode a response. Raises the exceptions that `UNREADABLE` of `connection.py` lists."""
        if version != VERSION or not header:
            raise ValueError(
                f"unsupported version {version}; this decoder reads version {VERSION} with its header"
            )
        reader = _Reader(frame)
        reader.skip(INT.size)  # correlation id
        reader.skip_tags()
        reader.skip(INT.size)  # throttle time
        racks: dict[int, str] = {}
        brokers: dict[int, Address] = {}
        for _ in range(reader.length()):
            node = reader.integer()
            brokers[node] = Address(reader.text(), reader.integer())
            rack = reader.text()
            reader.skip_tags()
            if rack:
                racks[node] = rack
        cluster_id = reader.text()
        reader.skip(INT.size)  # controller
        return cls(tuple(_topic(reader, racks) for _ in range(reader.length())), cluster_id, brokers)


def _topic(reader: "_Reader", racks: Racks) -> Described:
    (error_code,) = SHORT.unpack(reader.take(SHORT.size))
    name = reader.text()
    topic_id = reader.take(TOPIC_ID_BYTES)
    is_internal = reader.take(1) != b"\0"
    partitions = reader.length()
    by_number, leaders = reader.partitions(partitions, racks)
    reader.skip(INT.size)  # authorized operations
    reader.skip_tags()
    topic = Topic(partitions, by_number, b"" if topic_id == NO_TOPIC_ID else topic_id)
    return Described(name, error_code, is_internal, topic, leaders)


class _Reader:
    """A cursor over the bytes of a response in Kafka's flexible encoding. Raises IndexError at their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise IndexError("the answer ends too soon")
        self._at += size
        return taken

    def skip(self, size: int) -> None:
        """Skip the next `size` bytes."""
        self.take(size)

    def integer(self) -> int:
        """Read a signed 32-bit number."""
        (number,) = INT.unpack(self.take(INT.size))
        return int(number)

    def varint(self) -> int:
        """Read an unsigned varint: seven bits a byte."""
        number = shift = 0
        while (byte := self._data[self._at]) >= SHORT_LENGTHS:
            number |= (byte & (SHORT_LENGTHS - 1)) << shift
            shift += 7
            self._at += 1
        self._at += 1
        return number | byte << shift

    def length(self) -> int:
        """Read the length of an array, string or byte string; null is 0."""
        found = max(self.varint() - 1, 0)
        # Each entry has at least one byte. Without this check a wrong length would cause a long loop.
        if found > len(self._data) - self._at:
            raise IndexError("the answer ends too soon")
        return found

    def text(self) -> str:
        """Read a string; null is empty."""
        return self.take(self.length()).decode()

    def skip_tags(self) -> None:
        """Skip the tagged fields that newer brokers may add."""
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())

    def partitions(
        self, partitions: int, racks: Racks
    ) -> tuple[tuple[frozenset[str], ...], Sequence[Leader]]:
        """Read the racks of each partition's replicas and its leader, by its number; no racks if no broker has one."""
        # Partitions with the same replicas, or the same leader, share an object.
        sets: dict[bytes, frozenset[str]] = {}
        shared: dict[bytes, Leader] = {}
        by_number: list[frozenset[str]] = [frozenset()] * partitions
        leaders = [Leader(NO_LEADER, -1)] * partitions
        for _ in range(partitions):
            number, leader, replicas = self._short_partition() or self._partition()
            if replicas not in sets:
                nodes = (node for (node,) in INT.iter_unpack(replicas))
                sets[replicas] = frozenset(racks[node] for node in nodes if node in racks)
            if leader not in shared:
                shared[leader] = Leader(*LEADER.unpack(leader))
            by_number[number] = sets[replicas]
            leaders[number] = shared[leader]
        return tuple(by_number) if racks else (), leaders

    def _partition(self) -> tuple[int, bytes, bytes]:
        """Read a partition: its number, and undecoded its leader and the ids of its replicas."""
        head = self.take(PARTITION_HEAD.size)
        _, number, _, _ = PARTITION_HEAD.unpack(head)
        replicas = self.take(self.length() * INT.size)
        self.skip(self.length() * INT.size)  # in sync
        self.skip(self.length() * INT.size)  # offline
        self.skip_tags()
        return number, head[-LEADER.size :], replicas

    def _short_partition(self) -> tuple[int, bytes, bytes] | None:
        """Read a partition in a third of the time; None: it has a length of several bytes or tagged fields, nothing is read."""
        data, at = self._data, self._at + PARTITION_HEAD.size
        # A compact array has its length plus 1; 0 is null.
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
        return number, data[at - LEADER.size : at], data[at + 1 : in_sync]
