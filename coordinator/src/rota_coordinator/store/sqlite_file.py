"""
The file of the embedded store as its writer holds it: flushed as far as is needed, checkpointed, and distrusted after
an error.

When a flush fails, the system may take what it could not write for written: the next flush then succeeds without it,
and what is acknowledged by that lies behind a gap. So after an error nothing is written before the WAL was put down
once more and copied into the database as a whole, through connections that are new.
"""

from pathlib import Path

import apsw

from rota_coordinator.store.port import StoreError
from rota_coordinator.store.sqlite_readers import Readers
from rota_coordinator.store.sqlite_schema import WAL_BYTES_MAX, connect

PAGE_BYTES = 4_096
# As SQLite does by itself: 4 MB.
CHECKPOINT_PAGES = 1_000
# How long readers may keep a WAL that is too long from beginning anew, before it is tried again later.
RESTART_MS = 1_000
BUSY_MS = 5_000
# SQLite writes no more than 128 KB at a time.
COPIED_AT_ONCE = 64 * 1024
# After these the file is as before, and the connection too.
HARMLESS = (apsw.FullError, apsw.ConstraintError)


class DatabaseFile:
    """The only connection that writes; its thread's, from the first call on."""

    def __init__(self, path: Path, vfs: str) -> None:
        self._path = path
        self._vfs = vfs
        self._flushing = True
        self._pages = 0  # written since the last checkpoint, about
        self._connection: apsw.Connection | None = open_recovered(path, vfs)
        self._trusted = True
        self.readers = Readers(path, vfs)

    def connection(self, *, flush: bool) -> apsw.Connection:
        """The connection, such that what it commits is on the disk then, or only in the file."""
        if not self._trusted or self._connection is None:
            self._connection = self._reopened()
            self._trusted = self._flushing = True
        if flush is not self._flushing:
            self._connection.pragma("synchronous", "full" if flush else "normal")
            self._flushing = flush
        return self._connection

    def failed(self, error: apsw.Error) -> None:
        """Something was not written."""
        if not isinstance(error, HARMLESS):
            self._trusted = False
        else:
            self.roll_back()

    def roll_back(self) -> None:
        """Undo what is not committed."""
        if self._connection is not None and self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except apsw.Error:
                self._trusted = False

    def distrust(self) -> None:
        """Mark the connection as unusable: its state is unknown."""
        self._trusted = False

    def wrote(self, pages: int) -> None:
        """So much was written, about; checkpoint now and then."""
        self._pages += pages
        if self._pages < CHECKPOINT_PAGES or not self._trusted or self._connection is None:
            return
        self._pages = 0
        try:
            frames, _ = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if frames * PAGE_BYTES > WAL_BYTES_MAX:
                self._begin_wal_anew(self._connection)
        except apsw.FullError:
            # The WAL goes on, and the next append says so when there is no room for that either.
            return
        except apsw.Error:
            # Everybody was answered before, and rightly. The next append says whether it could be mended.
            self._trusted = False

    def _begin_wal_anew(self, connection: apsw.Connection) -> None:
        """Wait for those who read in it. Who comes meanwhile does not need it."""
        connection.set_busy_timeout(RESTART_MS)
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        except apsw.BusyError:
            return  # a slow reader; it is tried again with the next checkpoint
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
        """Readers first, so that what is in the WAL can be copied to the database, and the WAL be removed."""
        self.readers.close()
        if self._connection is None:
            return
        if self._trusted:
            try:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.Error:
                # All that was promised is on the disk. Whoever opens the file next does this first.
                self._trusted = False
        if self._trusted:
            self._connection.close(force=True)
        else:
            close_without_checkpoint(self._connection)


def open_recovered(path: Path, vfs: str) -> apsw.Connection:
    """A connection to a file that is on the disk as a whole, whatever failed before, perhaps in another process."""
    rewrite_wal(path, path.with_name(path.name + "-wal"), vfs)
    connection = connect(path, vfs)
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error:
        close_without_checkpoint(connection)
        raise
    return connection


def close_without_checkpoint(connection: apsw.Connection) -> None:
    """Close the connection, and leave the WAL as it is."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close(force=True)


def rewrite_wal(database: Path, wal: Path, vfs: str) -> None:
    """Write the file's own bytes over it: after a failed flush the system would else not write them."""
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
