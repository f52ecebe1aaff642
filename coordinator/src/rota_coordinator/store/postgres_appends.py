"""

The appends of a process to PostgreSQL. All waiting appends are one statement, hence one transaction and one flush.
A process that freezes during the statement holds no lock on the server, because the statement is a transaction.
"""

import asyncio
from collections.abc import Mapping, Sequence

from rota_coordinator.store.appends import Append, settle, slot_lost
from rota_coordinator.store.port import StoreError
from rota_coordinator.store.postgres_connection import Connection, SerialConnection

# Limits of one statement; further appends wait for the next one. A single append may exceed the bytes.
APPENDS_MAX = 1_000
BYTES_MAX = 16 * 1024 * 1024
# Locks the slots in order, which prevents deadlocks. After waiting for a lock, the statement reads the epoch and the
# last sequence number that the previous holder wrote; its snapshot of `batches` may be older.
APPEND = """
WITH waiting AS (
    SELECT * FROM unnest(%s::integer[], %s::bigint[], %b::bytea[], %s::bigint[])
        WITH ORDINALITY AS waiting (slot, epoch, data, checksum, ordinal)
), held AS (
    SELECT slot, epoch, last_sequence FROM rota.slots
    WHERE (slot, epoch) IN (SELECT slot, epoch FROM waiting)
    ORDER BY slot FOR NO KEY UPDATE
), numbered AS (
    SELECT ordinal, slot, last_sequence + row_number() OVER (PARTITION BY slot ORDER BY ordinal) AS sequence,
        data, checksum
    FROM waiting JOIN held USING (slot, epoch)
), written AS (
    INSERT INTO rota.batches SELECT slot, sequence, data, checksum FROM numbered
), counted AS (
    UPDATE rota.slots SET last_sequence = latest.sequence
    FROM (SELECT slot, max(sequence) AS sequence FROM numbered GROUP BY slot) AS latest
    WHERE slots.slot = latest.slot
)
SELECT ordinal, sequence FROM numbered
"""


class Appends:
    """The queue of appends, and the task that writes them. Invariant: appends are written in the order of `put`."""

    def __init__(self, connection_line: SerialConnection) -> None:
        self._line = connection_line
        self._waiting: list[Append] = []
        self._closed = False
        # Slot -> epoch of an append with unknown outcome. Later appends of this epoch must not be written, because
        # they may depend on it.
        self._broken: dict[int, int] = {}
        self._arrived = asyncio.Event()
        self._writer = asyncio.ensure_future(self._run())

    def put(self, append: Append) -> None:
        """Queue an append; its future is resolved once it is written or has failed."""
        if self._closed:
            settle(append.done, None, StoreError("the store is closed"))
            return
        self._waiting.append(append)
        self._arrived.set()

    async def close(self) -> None:
        """Write the queued appends, then stop the task."""
        self._closed = True
        self._arrived.set()
        await self._writer

    async def _run(self) -> None:
        taken: Sequence[Append] = ()
        try:
            while self._waiting or not self._closed:
                self._arrived.clear()
                if not self._waiting:
                    await self._arrived.wait()
                taken = self._take()
                await self._commit(taken)
        finally:
            # Not empty only after an unexpected error ended the task; the appends must not wait forever.
            self._closed = True
            for append in (*taken, *self._waiting):
                settle(append.done, None, StoreError("the writer has stopped; restart the coordinator"))

    def _take(self) -> Sequence[Append]:
        """Return the appends of the next statement."""
        size, count = 0, 0
        for append in self._waiting[:APPENDS_MAX]:
            size += len(append.data)
            if count and size > BYTES_MAX:
                break
            count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    async def _commit(self, appends: Sequence[Append]) -> None:
        """Write the appends in one transaction; an append with an old epoch is rejected, the others are written."""
        sound: list[Append] = []
        for append in appends:
            if append.epoch > self._broken.get(append.slot, 0):
                sound.append(append)
            else:
                settle(append.done, None, slot_lost(append.slot, append.epoch))
        try:
            sequences = await self._line.run(lambda connection: write(connection, sound)) if sound else {}
        except StoreError as unknown:
            for append in sound:
                self._broken[append.slot] = max(append.epoch, self._broken.get(append.slot, 0))
                settle(append.done, None, unknown)
            return
        for ordinal, append in enumerate(sound, start=1):
            if ordinal in sequences:
                settle(append.done, sequences[ordinal] if append.numbered else None, None)
            else:
                settle(append.done, None, slot_lost(append.slot, append.epoch))


async def write(connection: Connection, appends: Sequence[Append]) -> Mapping[int, int]:
    """Write the appends; return the sequences of those that were accepted, by their ordinal in the list, from 1."""
    columns = tuple(
        zip(*((each.slot, each.epoch, each.data, each.checksum) for each in appends), strict=True)
    )
    written = await connection.execute(APPEND, [list(column) for column in columns])
    return dict(await written.fetchall())
