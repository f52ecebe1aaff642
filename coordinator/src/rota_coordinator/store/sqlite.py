"""
The store of a single process: all slots and the embedded log in one SQLite file.

One thread writes in the order of the calls (`sqlite_writer`); rows of the log are read through separate connections
(`sqlite_readers`). A lock on the inode keeps a second process out, whatever path it uses for the file.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

import apsw

from rota_coordinator.core.log.batch import Header, Row
from rota_coordinator.core.log.cleaning import Change
from rota_coordinator.core.log.retention import Oldest
from rota_coordinator.store import batches
from rota_coordinator.store.appends import append_of
from rota_coordinator.store.port import Claim, StoreError, check_slots
from rota_coordinator.store.sqlite_backup import BACKUP_ID, SERVED_ID
from rota_coordinator.store.sqlite_file import DatabaseFile
from rota_coordinator.store.sqlite_rows import RowReader
from rota_coordinator.store.sqlite_schema import slots_of
from rota_coordinator.store.sqlite_work import AppendRows, AtomicWrite, Drop, Job, Other, Part, Rewrite, Write
from rota_coordinator.store.sqlite_writer import Writer
from rota_proto.coordinator.v1.records_pb2 import Record
from rota_service.private_files import FILE_MODE, FOLDER_MODE, OTHERS

Result = TypeVar("Result")


class SqliteStore:
    """The embedded store; created by `open_store`."""

    def __init__(self, path: Path, lock: IO[bytes], file: DatabaseFile, slots: int) -> None:
        self.slots = slots
        self._path = path
        self._lock = lock
        self._loop = asyncio.get_running_loop()
        self._readers = file.readers
        self._rows = RowReader(str(path))
        self._writer = Writer(path, file)
        # Work requested within the `atomic` block; None outside.
        self._unit: list[Write | Other] | None = None

    async def claim(self, slot: int) -> Claim:
        def work(connection: apsw.Connection) -> Claim:
            return Claim(self._writer.claim(connection, slot), handover=b"")

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
                connection.execute("DELETE FROM batches WHERE slot = ?", (slot,))
                # After a statement that takes the write lock, so that no other process claims the slot before the
                # commit.
                self._writer.check(connection, slot, epoch)
                connection.execute("INSERT INTO batches VALUES (?, 1, ?, ?)", (slot, data, checksum))

        return self._do(work)

    @contextmanager
    def atomic(self) -> Iterator[None]:
        if self._unit is not None:
            raise RuntimeError("`atomic` blocks cannot be nested")
        unit: list[Write | Other] = []
        abort_reason = "its transaction was abandoned"
        self._unit = unit
        try:
            yield
            abort_reason = ""
        finally:
            self._unit = None
            parts = [work for work in unit if isinstance(work, Part)]
            if parts:
                self._put(AtomicWrite(parts, abort_reason))
            # After the writes that it may depend on.
            for work in unit:
                if not isinstance(work, Part):
                    self._put(work)

    def append_rows(self, epoch: int, rows: Sequence[Row], *, flush: bool) -> "asyncio.Future[None]":
        done: asyncio.Future[None] = self._loop.create_future()
        self._put(AppendRows(epoch, rows, flush, done, sum(len(row.payload) for row in rows)))
        return done

    def rows_waiting_bytes(self) -> int:
        return self._writer.waiting_bytes()

    def drop_rows(self, log_id: int, before_offset: int | None) -> "asyncio.Future[int]":
        done: asyncio.Future[int] = self._loop.create_future()
        self._put(Drop(log_id, before_offset, done))
        return done

    def rewrite_rows(self, log_id: int, changes: Sequence[Change]) -> "asyncio.Future[int]":
        done: asyncio.Future[int] = self._loop.create_future()
        self._put(Rewrite(log_id, changes, done))
        return done

    async def headers(self) -> AsyncIterator[Sequence[tuple[int, Header]]]:
        behind = (-1, -1)
        while True:
            position = behind
            some = await self._readers.read(lambda connection: self._rows.headers(connection, position))  # noqa: B023
            if not some:
                return
            yield some
            log_id, header = some[-1]
            behind = (log_id, header.base_offset)

    async def sizes(self) -> Mapping[int, int]:
        return await self._readers.read(self._rows.sizes)

    async def read(self, log_id: int, offset: int, until: int, max_bytes: int) -> Sequence[Row]:
        return await self._readers.read(
            lambda connection: self._rows.read(connection, log_id, (offset, until), max_bytes)
        )

    async def first_at(self, log_id: int, timestamp_ms: int) -> Header | None:
        return await self._readers.read(
            lambda connection: self._rows.first_at(connection, log_id, timestamp_ms)
        )

    async def oldest(self, log_id: int, count: int) -> Sequence[Oldest]:
        return await self._readers.read(lambda connection: self._rows.oldest(connection, log_id, count))

    async def size(self, log_id: int) -> int:
        return await self._readers.read(lambda connection: self._rows.size(connection, log_id))

    async def size_between(self, log_id: int, offset: int, until: int) -> int:
        return await self._readers.read(
            lambda connection: self._rows.size_between(connection, log_id, (offset, until))
        )

    async def end_restore(self) -> None:
        """Remove the mark of a backup from the file, after its groups were prepared."""

        def work(connection: apsw.Connection) -> None:
            connection.pragma("application_id", SERVED_ID)

        await self._do(work)

    async def close(self) -> None:
        self._writer.put(None)
        await asyncio.to_thread(self._writer.join)
        self._lock.close()

    def _do(self, work: Callable[[apsw.Connection], Result]) -> "asyncio.Future[Result]":
        done: asyncio.Future[Result] = self._loop.create_future()
        self._put(Job(work, done))
        return done

    def _put(self, work: Write | Other) -> None:
        if self._unit is None:
            self._writer.put(work)
        else:
            self._unit.append(work)


def open_store(
    path: Path, vfs: str = "", *, slots: int | None = None, restoring: bool = False
) -> SqliteStore:
    """
    Open or create the file, through SQLite's default VFS or another; called in the event loop that uses the store.

    A file that was created with another number of slots is rejected, and a backup unless `restoring`.
    """
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        lock = os.fdopen(
            os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE), "ab"
        )
    except OSError as broken:
        raise StoreError(f"{path} cannot be created ({broken}); choose another file with --store") from broken
    try:
        # flock locks the inode. SQLite's own POSIX locks are per process and are released with any descriptor.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise StoreError(
            f"{path} is in use by another coordinator; stop that one, or choose another file with --store"
        ) from None
    try:
        file = DatabaseFile(path, vfs, slots)
        try:
            found = _check(file.connection(flush=True), path, slots, restoring=restoring)
        except StoreError:
            file.close()
            raise
        # SQLite creates the WAL and its index with the mode of the database file.
        for beside in ("", "-wal", "-shm"):
            _close_to_others(path.with_name(path.name + beside))
        return SqliteStore(path, lock, file, found)
    except apsw.Error as broken:
        lock.close()
        raise StoreError(f"{path} cannot be opened ({broken}); choose another file with --store") from broken
    except StoreError:
        lock.close()
        raise


def _check(connection: apsw.Connection, path: Path, slots: int | None, *, restoring: bool) -> int:
    """Return the number of slots of the file; raise StoreError if it may not be served."""
    if not restoring and connection.pragma("application_id") == BACKUP_ID:
        raise StoreError(
            f"{path} is a backup, whose groups count generations that were issued before; run "
            f"`python -m rota_coordinator --store sqlite:{path} --restored` once"
        )
    found = slots_of(connection)
    check_slots(str(path), found, slots)
    return found


def _close_to_others(file: Path) -> None:
    """Remove group and other permissions that an earlier version gave the file; skip a file of another user."""
    if not file.exists():
        return
    found = file.stat()
    if found.st_mode & OTHERS and found.st_uid == os.geteuid():
        file.chmod(FILE_MODE)
