"""
Appends single records from any thread, to the slabs of open batches (`slabs.py`) where there is one, else under the accumulator's lock.

A record takes the lock as one of the first of its batch, with headers, without a value, if it is longer than those before it, or if
the slab is full. The batch then gets a slab for those that follow.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping

from rota.producer.accumulator import Accumulator
from rota.producer.batches import Batch
from rota.producer.futures import NO_INDEX, SendFuture, SlabFuture
from rota.producer.partitioner import hash_of
from rota.producer.slabs import Slab, SlabName
from rota.records import Headers

# A batch has slabs from this many records on: a producer that sends now and then has no use for them.
RECORDS_BEFORE = 8


class SlabWriter:
    """The `send` of an engine for threads. Invariant: a record is in one batch, or `send` has raised."""

    def __init__(self, accumulator: Accumulator, wall_ms: Callable[[], int]) -> None:
        self._accumulator = accumulator
        self._slabs: Mapping[SlabName, Slab] = accumulator.slabs
        self._partitions: Mapping[str, int] = accumulator.partitions
        self._wall_ms = wall_ms

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> SendFuture:
        """Queue a validated record."""
        if partition is not None:
            slab = self._slabs.get((topic, partition))
        elif key is None:
            slab = self._slabs.get(topic)
        else:
            count = self._partitions.get(topic)
            slab = self._slabs.get((topic, hash_of(key) % count)) if count else None
        if slab is not None and value is not None and not headers:
            size = len(value) if key is None else len(value) + len(key)
            if size <= slab.size_max:
                future: SlabFuture = SlabFuture()
                future.batch = slab.batch
                future.index = NO_INDEX
                entries = slab.entries
                entries += (value, key, self._wall_ms() if timestamp_ms is None else timestamp_ms, future)
                if len(entries) <= slab.room or self._accumulator.settle(slab, future):
                    return future
        batch, index = self.append(topic, value, key, partition, timestamp_ms, headers)
        if index >= RECORDS_BEFORE:
            self._accumulator.open_slab(batch)
        return SendFuture(batch, index)

    @abstractmethod
    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> tuple[Batch, int]:
        """Append a record to its batch under the accumulator's lock, and wait for room; return the batch and its index there."""
