"""Splits a `send_many` into chunks for one partition each. Pure; both producers on Rota's log use it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rota.producer.partitioner import hash_of

Column = Sequence[bytes | None]
CHUNK_RECORDS_MAX = 8192
"""Maximum number of records in a chunk: other threads may send in between, and records without room are measured again."""


class Chunk(NamedTuple):
    """Records for one partition; partition None means any, because the records have no keys."""

    partition: int | None
    # Positions of the records in the input of `send_many`.
    positions: Sequence[int]
    values: Column
    keys: Column | None

    def after(self, count: int) -> "Chunk":
        """Return the chunk without its first `count` records."""
        keys = None if self.keys is None else self.keys[count:]
        return Chunk(self.partition, self.positions[count:], self.values[count:], keys)


def chunks(values: Column, keys: Column | None, partitions: int) -> Iterator[Chunk]:
    """Split all records into chunks; the records of a partition stay in order."""
    if keys is None:
        yield from _split(Chunk(None, range(len(values)), values, None))
        return
    found: dict[int | None, list[int]] = {}
    for position, key in enumerate(keys):
        found.setdefault(None if key is None else hash_of(key) % partitions, []).append(position)
    for partition, positions in found.items():
        mine = [values[position] for position in positions]
        yield from _split(Chunk(partition, positions, mine, [keys[position] for position in positions]))


def _split(whole: Chunk) -> Iterator[Chunk]:
    for start in range(0, len(whole.positions), CHUNK_RECORDS_MAX):
        end = start + CHUNK_RECORDS_MAX
        keys = None if whole.keys is None else whole.keys[start:end]
        yield Chunk(whole.partition, whole.positions[start:end], whole.values[start:end], keys)
