"""Shared by the tests of consumers: records to read, readers, a listener that remembers."""

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

import rota
from rota.consumer.listeners import Partitions
from rota.testing import Group

P0, P1 = rota.TopicPartition("orders", 0), rota.TopicPartition("orders", 1)
WAIT_MS = 60_000
# Long enough for whatever is on its way in this process.
SOON_MS = 50
Calls = list[tuple[str, tuple[rota.TopicPartition, ...]]]


def fill(group: Group, count: int = 10, partition: int = 0) -> None:
    for number in range(count):
        group.send("orders", b"%d" % number, partition=partition)


def read(consumer: rota.Consumer, count: int, max_records: int | None = None) -> list[rota.Record[Any, Any]]:
    """So many records, in the order of their coming."""
    found: list[rota.Record[Any, Any]] = []
    while len(found) < count:
        polled = consumer.poll(timeout_ms=WAIT_MS, max_records=max_records)
        assert polled, f"{len(found)} of {count} records came"
        found += [record for records in polled.values() for record in records]
    return found


def offsets(records: Sequence[rota.Record[Any, Any]]) -> list[int]:
    return [record.offset for record in records]


class Listener(rota.RebalanceListener):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.calls: Calls = []

    @override
    def on_partitions_assigned(self, partitions: Partitions) -> None:
        self.calls.append(("assigned", tuple(sorted(partitions))))

    @override
    def on_partitions_revoked(self, partitions: Partitions) -> None:
        self.calls.append(("revoked", tuple(sorted(partitions))))

    @override
    def on_partitions_lost(self, partitions: Partitions) -> None:
        self.calls.append(("lost", tuple(sorted(partitions))))
