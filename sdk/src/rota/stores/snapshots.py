"""
Snapshots of local state beside the results: the in-memory state of an aggregation, from which the next owner continues.

Most snapshots are incremental (changes); a full one prunes those before it. All are written after the check of the fence:
a late owner adds nothing.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping

from rota.stores.batch import Batch, Tenure
from rota.stores.errors import Partition, StoreError
from rota.stores.flows import Flow, Statement, check_owner
from rota.stores.tables import Tables

CHUNK_BYTES = 1 << 20
ENTRY_BYTES_MAX = 64 << 20
CHUNKS_PER_READ = 8
# Lengths of key and value; DELETED stands for a deleted value.
LENGTHS = struct.Struct(">Ii")
DELETED = -1


class Snapshots:
    """
    State of a group by partition, under one name: keys and values as bytes.

    `full_every` bounds the number of snapshots that a restore reads. ::

        totals = Snapshots("totals", full_every=100)
        state = store.restore(totals, tenure, partition)
        with store.transaction(tenure) as tx:
            changes = add_up(batch, state)
            totals.save(tx, partition, changes, state)
            tx.save({partition: batch.next_offset})

    After a failed transaction `state` has changes that were not stored: restore it again.
    """

    def __init__(self, name: str = "state", *, full_every: int = 100, chunk_bytes: int = CHUNK_BYTES) -> None:
        if full_every < 1 or chunk_bytes < 1:
            raise StoreError(f"snapshots {name!r} need full_every and chunk_bytes of at least 1")
        self._name = name
        self._full_every = full_every
        self._chunk_bytes = chunk_bytes

    def save(
        self,
        batch: Batch,
        partition: Partition,
        changes: Mapping[bytes, bytes | None],
        state: Mapping[bytes, bytes],
    ) -> None:
        """
        Store the changes of a batch, None for a deleted key; or all of `state` if a full snapshot is due.

        Both are read when the block ends. Call it once for each partition and batch.
        """
        batch.write_after_check(partition, self._saved(batch, partition, changes, state))

    def save_full(self, batch: Batch, partition: Partition, state: Mapping[bytes, bytes]) -> None:
        """Store a full snapshot now, and prune those before it."""
        batch.write_after_check(partition, self._saved(batch, partition, None, state))

    def restored(self, tables: Tables, tenure: Tenure, partition: Partition) -> Flow[dict[bytes, bytes]]:
        """Read the last full snapshot and the changes since. Stores perform it."""
        yield from check_owner(tables, tenure.group, [partition])
        state: dict[bytes, bytes] = {}
        state_key = self._state_key(tenure, partition)
        last = (-1, -1)
        while True:
            rows = yield Statement(
                f"SELECT sequence, chunk, is_full, content FROM {tables.snapshots} "
                "WHERE group_id = ? AND name = ? AND topic = ? AND partition = ? AND (sequence, chunk) > (?, ?) "
                "ORDER BY sequence, chunk LIMIT ?",
                (*state_key, *last, CHUNKS_PER_READ),
                returns_rows=True,
            )
            for sequence, chunk, is_full, content in rows:
                if is_full and chunk == 0:
                    state.clear()
                _apply(bytes(content), state)
                last = (sequence, chunk)
            if len(rows) < CHUNKS_PER_READ:
                return state

    def _saved(
        self,
        batch: Batch,
        partition: Partition,
        changes: Mapping[bytes, bytes | None] | None,
        state: Mapping[bytes, bytes],
    ) -> Flow[None]:
        if changes is not None and not changes:
            return
        table = batch.tables.snapshots
        state_key = self._state_key(batch.tenure, partition)
        here = "group_id = ? AND name = ? AND topic = ? AND partition = ?"
        # A full snapshot prunes those before it, so the chain begins with the lowest sequence.
        ((first, last),) = yield Statement(
            f"SELECT MIN(sequence), MAX(sequence) FROM {table} WHERE {here}", state_key, returns_rows=True
        )
        sequence = 1 if last is None else last + 1
        is_full = changes is None or (first is not None and sequence - first >= self._full_every)
        entries = state if changes is None or is_full else changes
        for chunk, content in enumerate(self._packed(entries.items())):
            yield Statement(
                f"INSERT INTO {table} (group_id, name, topic, partition, sequence, chunk, is_full, content) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*state_key, sequence, chunk, int(is_full), content),
            )
        if is_full:
            yield Statement(f"DELETE FROM {table} WHERE {here} AND sequence < ?", (*state_key, sequence))

    def _state_key(self, tenure: Tenure, partition: Partition) -> tuple[object, ...]:
        return (tenure.group.group_id, self._name, *partition)

    def _packed(self, entries: Iterable[tuple[bytes, bytes | None]]) -> Iterator[bytes]:
        """Encode the entries in chunks of about `chunk_bytes` each; at least one chunk."""
        chunk = bytearray()
        packed = False
        for key, value in entries:
            if len(key) + len(value or b"") > ENTRY_BYTES_MAX:
                raise StoreError(
                    f"an entry of snapshots {self._name!r} exceeds {ENTRY_BYTES_MAX} bytes: split it over "
                    "several keys"
                )
            chunk += LENGTHS.pack(len(key), DELETED if value is None else len(value)) + key + (value or b"")
            if len(chunk) >= self._chunk_bytes:
                yield bytes(chunk)
                chunk.clear()
                packed = True
        if chunk or not packed:
            yield bytes(chunk)


def _apply(content: bytes, state: dict[bytes, bytes]) -> None:
    position = 0
    while position < len(content):
        key_length, value_length = LENGTHS.unpack_from(content, position)
        start = position + LENGTHS.size
        middle = start + key_length
        key = content[start:middle]
        if value_length == DELETED:
            state.pop(key, None)
            position = middle
        else:
            position = middle + value_length
            state[key] = content[middle:position]
