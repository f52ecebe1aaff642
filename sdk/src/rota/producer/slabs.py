"""
Slabs: records of one open batch that threads append without a lock, and that the accumulator takes many at a time.

A slab is a reservation in the open batch of a partition: room for a number of records that are not longer than `size_max`.
`slab_writer.py` appends the record and its future to the slab with one operation on a list. The accumulator opens and closes slabs
under its lock: it closes one before it adds to its batch in any other way, and before it gives the batch to the sender. Only then the
records are in the batch, and their futures have an index.

Threads agree by the order of two steps. A writer appends, then reads `room`; the accumulator sets `room` to 0, then reads the
entries. So a record that was appended too late for the accumulator finds the slab closed, and is appended again under the lock.
That needs two operations to be atomic, and each is one call into C that runs no Python code: `list += tuple`, and a slice of a list.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rota.producer.batches import Batch
from rota.producer.futures import SlabFuture

# Entries of a record: value, key, timestamp in ms, future.
FIELDS = 4
SlabName = str | tuple[str, int]
"""Topic and partition; the topic alone for its records without a key and a partition."""


class Columns(NamedTuple):
    """The records of a closed slab, column by column."""

    values: list[bytes]
    keys: list[bytes | None]
    timestamps_ms: list[int]
    futures: list[SlabFuture]


@dataclass(slots=True, eq=False)
class Slab:
    """
    Records that wait to be added to an open batch.

    Invariants: the first `room` entries never change once they are there; `room` becomes 0 once, and then no record is added.
    """

    batch: Batch
    # Maximum length of value and key together, in bytes.
    size_max: int
    # Bytes of the batch and of the buffer that are reserved for the records.
    reserved: int
    # Length of `entries` up to which they are records of the slab; 0 once it is closed.
    room: int
    entries: list[Any] = field(default_factory=list)
    _accepted: list[Any] = field(default_factory=list)

    def close(self) -> Columns:
        """Close the slab, and return its records; called under the accumulator's lock. Later calls return the same."""
        room, self.room = self.room, 0
        if room:
            # A slice, not a length: it is atomic also where threads run in parallel.
            self._accepted = self.entries[:room]
        found = self._accepted
        return Columns(found[0::FIELDS], found[1::FIELDS], found[2::FIELDS], found[3::FIELDS])
