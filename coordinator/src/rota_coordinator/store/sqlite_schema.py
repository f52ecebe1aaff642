"""The tables of the embedded store, their migration, and the settings of connections to its file."""

from pathlib import Path

import apsw

from rota_coordinator.core.slots.table import SLOTS
from rota_coordinator.store.port import LOG_SLOT, StoreError

VERSION = 3
# The tables of version 1.
GROUPS = """
CREATE TABLE slots (slot INTEGER PRIMARY KEY, epoch INTEGER NOT NULL) STRICT;
CREATE TABLE batches (
    slot INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    data BLOB NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (slot, sequence)
) STRICT, WITHOUT ROWID;
"""
# The tables of version 2, beside those of version 1.
# Payloads are in a separate table in write order: writes to any number of logs append to one table, and a scan of all
# headers reads no payload.
LOG = """
CREATE TABLE headers (
    log_id INTEGER NOT NULL,
    base_offset INTEGER NOT NULL,
    count INTEGER NOT NULL,
    base_timestamp_ms INTEGER NOT NULL,
    max_timestamp_ms INTEGER NOT NULL,
    producer_id INTEGER NOT NULL,
    producer_epoch INTEGER NOT NULL,
    base_sequence INTEGER NOT NULL,
    transactional INTEGER NOT NULL,
    control INTEGER NOT NULL,
    appended_ms INTEGER NOT NULL,
    codec INTEGER NOT NULL,
    -- Of the payload.
    bytes INTEGER NOT NULL,
    -- Of all payloads of the log up to this one; the difference of two rows is what lies between them.
    bytes_until INTEGER NOT NULL,
    -- The greatest timestamp up to this row, so that a time is found by one look into the index.
    latest_ms INTEGER NOT NULL,
    payload_id INTEGER NOT NULL,
    payload_checksum INTEGER NOT NULL,
    -- Of all columns before.
    checksum INTEGER NOT NULL,
    PRIMARY KEY (log_id, base_offset)
) STRICT, WITHOUT ROWID;
CREATE INDEX headers_by_time ON headers (log_id, latest_ms);
CREATE TABLE payloads (payload_id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;
"""
# The table of version 3, with one row: a store keeps its number of slots.
SETTINGS = "CREATE TABLE settings (slots INTEGER NOT NULL) STRICT;"
# The slot of the log's events before version 3, when every store had this number of slots.
LOG_SLOT_BEFORE = SLOTS
# Incremental vacuum, so that files shrink with their logs. It takes 0.1 % of the file and no measurable time.
INCREMENTAL = 2
# A WAL above this size is truncated when it restarts.
WAL_BYTES_MAX = 64 * 1024 * 1024
BUSY_MS = 5_000
# Size of the statement cache: there is one statement for each number of slots or rows.
STATEMENTS = 256


def connect(path: Path, vfs: str = "", slots: int | None = None) -> apsw.Connection:
    """
    Return the writer's connection, with the schema migrated; a new file gets this number of slots, or the default. It
    checkpoints on request only, so that errors surface.
    """
    connection = apsw.Connection(str(path), vfs=vfs or None, statementcachesize=STATEMENTS)
    try:
        connection.set_busy_timeout(BUSY_MS)
        without_temporary_files(connection)
        # Takes effect only before the first page is written.
        connection.pragma("auto_vacuum", INCREMENTAL)
        connection.pragma("journal_mode", "wal")
        connection.pragma("journal_size_limit", WAL_BYTES_MAX)
        connection.wal_autocheckpoint(0)
        # FULL, because responses promise durability; NORMAL may lose the last commits on a power failure.
        connection.pragma("synchronous", "full")
        migrate(connection, path, SLOTS if slots is None else slots)
    except (apsw.Error, StoreError):
        connection.close()
        raise
    return connection


def connect_reader(path: Path, vfs: str = "") -> apsw.Connection:
    """Return a read-only connection; it never checkpoints, not even as the last one to be closed."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs or None)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.set_busy_timeout(BUSY_MS)
    without_temporary_files(connection)
    return connection


def without_temporary_files(connection: apsw.Connection) -> None:
    """
    Keep statement journals and sorted rows in memory.

    In a container with a read-only root there may be no folder for temporary files: a change of many pages would fail then.
    """
    connection.pragma("temp_store", "memory")


def migrate(connection: apsw.Connection, path: Path, slots: int) -> None:
    """Create the tables for this number of slots, or those that an earlier version lacks."""
    version = connection.pragma("user_version")
    if version > VERSION:
        raise StoreError(f"{path} was written by a later version of Rota ({version}); start that version")
    if version == VERSION:
        return
    if version and connection.pragma("auto_vacuum") != INCREMENTAL:
        # Rewrites the whole file, which is small because it contains groups only.
        connection.pragma("auto_vacuum", INCREMENTAL)
        connection.execute("VACUUM")
    with connection:
        if not version:
            connection.execute(GROUPS)
        if version < 2:
            connection.execute(LOG)
        connection.execute(SETTINGS)
        connection.execute("INSERT INTO settings VALUES (?)", (SLOTS if version else slots,))
        if version:
            for table in ("slots", "batches"):
                connection.execute(f"UPDATE {table} SET slot = ? WHERE slot = ?", (LOG_SLOT, LOG_SLOT_BEFORE))
        connection.pragma("user_version", VERSION)


def slots_of(connection: apsw.Connection) -> int:
    """Return the number of slots that the file was created with."""
    return int(connection.execute("SELECT slots FROM settings").get)
