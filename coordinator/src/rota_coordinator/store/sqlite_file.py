"""

The writer's connection to the embedded store's file: flushing, checkpoints, and recovery after I/O errors.
After a failed flush, the operating system may mark unwritten pages as clean: the next flush then succeeds without
them, and acknowledges data that follows a gap. So after an error, the WAL is rewritten and checkpointed completely
through new connections before anything else is written.
"""

from pathlib import Path

import apsw

from rota_coordinator.store.port import StoreError
from rota_coordinator.store.sqlite_readers import Readers
from rota_coordinator.store.sqlite_schema import WAL_BYTES_MAX, connect

PAGE_BYTES = 4_096
# SQLite's default: 4 MB.
CHECKPOINT_PAGES = 1_000
# Time in ms that a restart of the WAL waits for readers, before it is retried at the next checkpoint.
RESTART_MS = 1_000
BUSY_MS = 5_000
# Bytes per write; SQLite writes at most 128 KB at a time.
COPIED_AT_ONCE = 64 * 1024
# Errors that leave both the file and the connection unchanged.
HARMLESS = (apsw.FullError, apsw.ConstraintError)


class DatabaseFile:
    """The only connection that writes; used by the writer's thread alone after its first call."""

    def __init__(self, path: Path, vfs: str, slots: int | None = None) -> None:
        self._path = path
        self._vfs = vfs
        self._flushing = True
        self._pages = 0  # approximate pages written since the last checkpoint
        self._connection: apsw.Connection | None = open_recovered(path, vfs, slots)
        self._trusted = True
        self.readers = Readers(path, vfs)

    def connection(self, *, flush: bool) -> apsw.Connection:
        """Return the connection, set to flush its commits to disk or only to write them to the file."""
        if not self._trusted or self._connection is None:
            self._connection = self._reopened()
            self._trusted = self._flushing = True
        if flush is not self._flushing:
            self._connection.pragma("synchronous", "full" if flush else "normal")
            self._flushing = flush
        return self._connection

    def failed(self, error: apsw.Error) -> None:
        """Record a failed write; the connection is distrusted unless the error is harmless."""
        if not isinstance(error, HARMLESS):
            self._trusted = False
        else:
            self.roll_back()

    def roll_back(self) -> None:
        """Roll back the open transaction."""
        if self._connection is not None and self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except apsw.Error:
                self._trusted = False

    def distrust(self) -> None:
        """Mark the connection as unusable: its state is unknown."""
        self._trusted = False

    def wrote(self, pages: int) -> None:
        """Count about this many written pages, and checkpoint when enough have accumulated."""
        self._pages += pages
        if self._pages < CHECKPOINT_PAGES or not self._trusted or self._connection is None:
            return
        self._pages = 0
        try:
            frames, _ = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if frames * PAGE_BYTES > WAL_BYTES_MAX:
                self._begin_wal_anew(self._connection)
        except apsw.FullError:
            # The WAL continues; the next append reports the error if the WAL cannot grow.
            return
        except apsw.Error:
            # All committed work has been acknowledged, correctly. The next append reports whether recovery succeeded.
            self._trusted = False

    def _begin_wal_anew(self, connection: apsw.Connection) -> None:
        """Restart the WAL after the readers that use it; readers that start meanwhile do not need it."""
        connection.set_busy_timeout(RESTART_MS)
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        except apsw.BusyError:
            return  # a slow reader; retried at the next checkpoint
        finally:
            connection.set_busy_timeout(BUSY_MS)

    def _reopened(self) -> apsw.Connection:
        try:
            with self.readers.exclusive():
                if self._connection is not None:
                    close_without_checkpoint(self._connection)
                    self._connection = None
                return open_recovered(self._path, self._vfs)
        except apsw.Error as broken:
            raise StoreError(
                f"{self._path} cannot be written ({broken}); check the disk, no group or topic is served until writing works"
            ) from broken

    def close(self) -> None:
        """Close the readers, then checkpoint and close, so that the WAL can be copied to the database and removed."""
        self.readers.close()
        if self._connection is None:
            return
        if self._trusted:
            try:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.Error:
                # All acknowledged work is on disk; the next open of the file recovers the WAL first.
                self._trusted = False
        if self._trusted:
            self._connection.close(force=True)
        else:
            close_without_checkpoint(self._connection)


def open_recovered(path: Path, vfs: str, slots: int | None = None) -> apsw.Connection:
    """
    Return a connection after the file was made fully durable, whatever failed before, in this process or another. A new
    file gets this number of slots.
    """
    rewrite_wal(path, path.with_name(path.name + "-wal"), vfs)
    connection = connect(path, vfs, slots)
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error:
        close_without_checkpoint(connection)
        raise
    return connection


def close_without_checkpoint(connection: apsw.Connection) -> None:
    """Close the connection without a checkpoint of the WAL."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close(force=True)


def rewrite_wal(database: Path, wal: Path, vfs: str) -> None:
    """Overwrite the WAL with its own bytes, because after a failed flush the system would not write them again."""
    if not (database.exists() and wal.exists()):
        return
    file = apsw.VFSFile(vfs, str(wal), [apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_WAL, 0])
    try:
        size = file.xFileSize()
        for begin in range(0, size, COPIED_AT_ONCE):
            file.xWrite(file.xRead(min(COPIED_AT_ONCE, size - begin), begin), begin)
        file.xSync(apsw.SQLITE_SYNC_NORMAL)
    finally:
        file.xClose()
