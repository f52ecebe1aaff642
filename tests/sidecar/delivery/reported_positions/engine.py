"""Backend interface of the stories: records, a client that reads them, committed offsets. Here is Rota's."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from typing_extensions import override

import rota
from tests.support.coordinator import Coordinator
from tests.support.records import batch, committed, produce


class Record(NamedTuple):
    """As the application's own client reads it."""

    offset: int
    timestamp_ms: int
    value: str


class Records(Protocol):
    """Topics with records, and the client with which an application reads them."""

    def make_topic(self, name: str, partitions: int) -> None:
        """One that is not there yet."""
        ...

    def produce(self, topic: str, partition: int, times_ms: Sequence[int]) -> None:
        """A record for each of these times; its value is its place among them."""
        ...

    def read(self, topic: str, partition: int, offset: int) -> Sequence[Record]:
        """All from that offset on."""
        ...


class Engine(NamedTuple):
    """Records, and who coordinates their groups."""

    # As a sidecar's `--bootstrap-servers`, and what else it needs to find its way.
    servers: str
    flags: Sequence[str]
    records: Records
    # By group and topic: what is committed, of each partition.
    committed: Callable[[str, str], Mapping[int, int]]


class RotaRecords(Records):
    """Records of a coordinator with its log, read by the SDK's reader."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    @override
    def make_topic(self, name: str, partitions: int) -> None:
        self._coordinator.make_topic(name, partitions)

    @override
    def produce(self, topic: str, partition: int, times_ms: Sequence[int]) -> None:
        batches = [batch([str(index)], at_ms=at_ms) for index, at_ms in enumerate(times_ms)]
        produce(self._coordinator.address, topic, partition, *batches)

    @override
    def read(self, topic: str, partition: int, offset: int) -> Sequence[Record]:
        with rota.LogReader(f"rota://{self._coordinator.address}") as reader:
            return [
                Record(record.offset, record.timestamp_ms, (record.value or b"").decode())
                for batch in reader.read(topic, partition, offset)
                for record in batch
            ]


def committed_on(coordinator: Coordinator) -> Callable[[str, str], Mapping[int, int]]:
    """Return the offsets that a group has committed at Rota's coordinator."""

    def look(group: str, topic: str) -> Mapping[int, int]:
        found = committed(coordinator.address, group)
        return {number: offset for (name, number), offset in found.items() if name == topic}

    return look


def rota_engine(coordinator: Coordinator) -> Engine:
    """Everything in one process."""
    return Engine(f"rota://{coordinator.address}", (), RotaRecords(coordinator), committed_on(coordinator))
