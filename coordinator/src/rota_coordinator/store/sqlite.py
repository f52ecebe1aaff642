"""
The store of one machine: all slots in one SQLite file, served by one process.

One thread holds the only connection that writes and checkpoints (two of them can damage a WAL file in many
SQLite versions), and commits all appends that wait in one transaction, with one flush. A lock on a file beside the
database keeps a second process out, or waiting.
"""

import asyncio
import fcntl
import itertools
import threading
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar, cast

import apsw

from rota_coordinator.store import batches
from rota_coordinator.store.appends import Append, Outcome, append_of, lost, settle, settle_all
from rota_coordinator.store.port import Claim, StoreError
from rota_proto.coordinator.v1.records_pb2 import Record

Result = TypeVar("Result")
SCHEMA_VERSION = 1
SCHEMA = """
CREATE TABLE slots (slot INTEGER PRIMARY KEY, epoch INTEGER NOT NULL) STRICT;
CREATE TABLE batches (
    slot INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    data BLOB NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (slot, sequence)
) STRICT, WITHOUT ROWID;
"""


class Owned(NamedTuple):
    """A slot, and the epoch at which somebody takes it to be theirs."""

    slot: int
    epoch: int


class Job(NamedTuple):
    """Anything else that the writer is to do, in its turn."""

    work: Callable[[apsw.Connection], Any]
    done: "asyncio.Future[Any]"


class SqliteStore:
    """The embedded store; made by `open_store`."""

    def __init__(self, path: Path, lock: IO[str], connection: apsw.Connection) -> None:
        self._path = path
        self._lock = lock
        self._connection = connection  # the writer thread's, from here on
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Append | Job | None] = []  # None: close
        self._closed = False
        # Slots with a failed append. What was decided after it must not be written without it.
        self._broken: set[int] = set()
        self._arrived = threading.Condition()
        self._writer = threading.Thread(target=self._run, name="sqlite-writer", daemon=True)
        self._writer.start()

    async def claim(self, slot: int) -> Claim:
        def work(connection: apsw.Connection) -> Claim:
            raised = (
                "INSERT INTO slots VALUES (?, 1) ON CONFLICT DO UPDATE SET epoch = epoch + 1 RETURNING epoch"
            )
            epoch = int(connection.execute(raised, (slot,)).get)
            self._broken.discard(slot)
            return Claim(epoch, parcel=b"")

        return await self._do(work)

    async def load(self, slot: int) -> Sequence[Record]:
        def work(connection: apsw.Connection) -> list[Record]:
            rows = connection.execute(
                "SELECT sequence, data, checksum FROM batches WHERE slot = ? ORDER BY sequence", (slot,)
            )
            return batches.decode_all(rows, f"slot {slot} in {self._path}")

        return await self._do(work)

    def append(self, slot: int, epoch: int, records: Sequence[Record]) -> "asyncio.Future[None]":
        append = append_of(slot, epoch, records)
        self._put(append)
        return append.done

    def compact(self, slot: int, epoch: int, snapshot: Sequence[Record]) -> "asyncio.Future[None]":
        def work(connection: apsw.Connection) -> None:
            data, checksum = batches.encode(snapshot)
            with connection:
                if slot in self._broken or epoch_of(connection, slot) != epoch:
                    raise lost(slot, epoch)
                connection.execute("DELETE FROM batches WHERE slot = ?", (slot,))
                connection.execute("INSERT INTO batches VALUES (?, 1, ?, ?)", (slot, data, checksum))

        return self._do(work)

    async def close(self) -> None:
        self._put(None)
        await asyncio.to_thread(self._writer.join)
        self._lock.close()

    def _do(self, work: Callable[[apsw.Connection], Result]) -> "asyncio.Future[Result]":
        done: asyncio.Future[Result] = self._loop.create_future()
        self._put(Job(work, done))
        return done

    def _put(self, work: Append | Job | None) -> None:
        with self._arrived:
            if self._closed and work is not None:
                settle(
                    work.done,
                    None,
                    StoreError(f"{self._path} is closed; nothing can be asked of it any more"),
                )
                return
            self._closed = work is None
            self._waiting.append(work)
            self._arrived.notify()

    def _run(self) -> None:
        """The writer thread: one thing after the other, appends that wait together in one transaction."""
        while True:
            with self._arrived:
                self._arrived.wait_for(lambda: self._waiting)
                waiting, self._waiting = self._waiting, []
            for kind, group in itertools.groupby(waiting, type):
                if kind is Append:
                    self._commit(cast("list[Append]", list(group)))
                elif kind is Job:
                    for job in cast("Iterator[Job]", group):
                        self._finish(job)
                else:
                    self._connection.close()
                    return

    def _commit(self, appends: Sequence[Append]) -> None:
        """Write all of them, with one flush; one whose epoch is old is refused, the others go on."""
        together: dict[Owned, list[bytes]] = {}
        for append in appends:
            if append.slot not in self._broken:
                together.setdefault(Owned(append.slot, append.epoch), []).append(append.data)
        error: Exception | None = None
        written: Collection[Owned] = ()
        try:
            written = write(self._connection, {owned: b"".join(data) for owned, data in together.items()})
        except apsw.Error as broken:
            error = StoreError(f"{self._path} could not be written ({broken}); see to the disk")
            self._broken.update(append.slot for append in appends)
        outcomes: list[Outcome] = []
        for append in appends:
            owned = Owned(append.slot, append.epoch)
            refused = error if owned in together else None
            if refused is None and owned not in written:
                refused = lost(append.slot, append.epoch)
            outcomes.append((append.done, None, refused))
        self._loop.call_soon_threadsafe(settle_all, outcomes)

    def _finish(self, job: Job) -> None:
        result, error = None, None
        try:
            result = job.work(self._connection)
        except apsw.Error as broken:
            error = StoreError(f"{self._path} failed ({broken}); see to the disk")
        except StoreError as broken:
            error = broken
        self._loop.call_soon_threadsafe(settle, job.done, result, error)


def write(connection: apsw.Connection, data: Mapping[Owned, bytes]) -> Collection[Owned]:
    """
    Append one batch to each slot that is owned at that epoch; which ones these are.

    One statement, and a transaction by itself: this thread gives Python's lock away at each step of a statement, and
    gets it back only when the loop's thread, which has much to do just then, next lets it go.
    """
    if not data:
        return ()
    rows = [value for owned, batch in data.items() for value in (*owned, batch, zlib.crc32(batch))]
    connection.execute(
        f"WITH new (slot, epoch, data, checksum) AS (VALUES {', '.join(['(?, ?, ?, ?)'] * len(data))}) "
        "INSERT INTO batches "
        "SELECT slot, coalesce((SELECT max(sequence) FROM batches WHERE slot = new.slot), 0) + 1, data, checksum "
        "FROM new JOIN slots USING (slot, epoch)",
        rows,
    )
    if connection.changes() == len(data):
        return data.keys()
    # Epochs are raised by this thread only: those that count now counted then.
    return {owned for owned in data if epoch_of(connection, owned.slot) == owned.epoch}


def epoch_of(connection: apsw.Connection, slot: int) -> int | None:
    """The epoch at which the slot is owned; None if nobody ever did."""
    return connection.execute("SELECT epoch FROM slots WHERE slot = ?", (slot,)).get  # type: ignore[no-any-return]


def connect(path: Path) -> apsw.Connection:
    """The writer's connection, with the schema in place."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(5_000)
    connection.pragma("journal_mode", "wal")
    # FULL: an answer is a promise, and NORMAL may forget the last commits when the power goes.
    connection.pragma("synchronous", "full")
    version = connection.pragma("user_version")
    if version > SCHEMA_VERSION:
        connection.close()
        raise StoreError(f"{path} was written by a later version of Rota ({version}); start that version")
    if version == 0:
        with connection:
            connection.execute(SCHEMA)
            connection.pragma("user_version", SCHEMA_VERSION)
    return connection


def open_store(path: Path) -> SqliteStore:
    """Open the file, or make it; called in the event loop that will use it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(path.name + ".lock").open("w")
    except OSError as broken:
        raise StoreError(f"{path} cannot be made ({broken}); name another file with --store") from broken
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise StoreError(
            f"{path} is in use by another coordinator; stop that one, or give this one another file with --store"
        ) from None
    try:
        return SqliteStore(path, lock, connect(path))
    except apsw.Error as broken:
        lock.close()
        raise StoreError(f"{path} cannot be opened ({broken}); name another file with --store") from broken
    except StoreError:
        lock.close()
        raise
