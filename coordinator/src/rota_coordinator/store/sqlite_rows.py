"""Rows of record batches in the embedded store: inserts, deletes and rewrites by the writer, and queries by the readers."""

import struct
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import apsw

from rota_coordinator.core.log.batch import ROW_BYTES, Control, Header, Row
from rota_coordinator.core.log.cleaning import Change
from rota_coordinator.core.log.retention import Oldest
from rota_coordinator.store import batches
from rota_coordinator.store.port import LOG_SLOT, DamagedBatch

COLUMNS = (
    "log_id, base_offset, count, base_timestamp_ms, max_timestamp_ms, producer_id, producer_epoch, base_sequence, "
    "transactional, control, appended_ms, codec, bytes, bytes_until, latest_ms, payload_id, payload_checksum, checksum"
)
WIDTH = COLUMNS.count(",") + 1
HEADER = slice(1, 10)
# All columns except the last one, which is their checksum.
CHECKED = struct.Struct(f"<{WIDTH - 1}q")
# SQL of the total of `stored_bytes` over rows.
STORED_BYTES = f"sum(bytes) + {ROW_BYTES} * count(*)"
# Condition within a write statement; a separate statement would cost more, see `append_batches`.
AT_EPOCH = "EXISTS (SELECT 1 FROM slots WHERE slot = ? AND epoch = ?)"
APPENDED_MS, CODEC, BYTES, BYTES_UNTIL, LATEST_MS, PAYLOAD_ID, PAYLOAD_CHECKSUM, CHECKSUM, DATA = range(
    10, 19
)
# Rows per statement. Each statement takes the GIL from the event loop twice, and is prepared once per row count.
INSERTED_AT_ONCE = 64
# Maximum number of cached log ends, which save a query before an append.
ENDS_MAX = 20_000
HEADERS_AT_ONCE = 5_000
# Maximum rows of one read, which keeps reads of small rows short.
READ_ROWS = 500
# Maximum bytes deleted in one transaction: some ten milliseconds.
DROPPED_BYTES = 4 * 1024 * 1024
DROPPED_ROWS = 500

# The rows from the one that has an offset, or the next one: those whose running totals are within the bytes.
FIRST = """
WITH first AS MATERIALIZED (
    SELECT base_offset AS begin, bytes_until - bytes AS bytes_before FROM headers
    WHERE log_id = ?1 AND base_offset + count > ?2 AND base_offset >= coalesce(
        (SELECT max(base_offset) FROM headers WHERE log_id = ?1 AND base_offset <= ?2), ?2)
    ORDER BY base_offset LIMIT 1
), near AS (
    SELECT * FROM headers
    WHERE log_id = ?1 AND base_offset >= (SELECT begin FROM first) AND base_offset < ?3
    ORDER BY base_offset LIMIT ?5
)"""
READ = f"""{FIRST}
SELECT {COLUMNS}, data FROM near LEFT JOIN payloads USING (payload_id)
WHERE bytes_until <= (SELECT bytes_before FROM first) + ?4 OR base_offset = (SELECT begin FROM first)
ORDER BY base_offset
"""
# Compaction leaves the running totals as they were: they are too far apart then. Adding up takes twice as long.
READ_COMPACTED = f"""{FIRST}, summed AS (
    SELECT *, sum(bytes) OVER (ORDER BY base_offset ROWS UNBOUNDED PRECEDING) AS bytes_read FROM near
)
SELECT {COLUMNS}, data FROM summed LEFT JOIN payloads USING (payload_id)
WHERE bytes_read <= ?4 OR base_offset = (SELECT begin FROM first)
ORDER BY base_offset
"""

Columns = tuple[Any, ...]


class End(NamedTuple):
    """The running totals that the next row of a log continues."""

    bytes_until: int
    latest_ms: int


class RowWriter:
    """Inserts and deletes rows within the writer's transactions. Its cache is valid until a transaction fails."""

    def __init__(self) -> None:
        self._ends: dict[int, End] = {}
        self._next_payload_id = 0

    def forget(self) -> None:
        """Clear the cache; the next insert reads the file."""
        self._ends.clear()
        self._next_payload_id = 0

    def insert(self, connection: apsw.Connection, rows: Sequence[Row], epoch: int) -> bool:
        """Append the rows to their logs if LOG_SLOT is at this epoch in the file; return whether it is."""
        if not self._next_payload_id:
            self._next_payload_id = (
                connection.execute("SELECT coalesce(max(payload_id), 0) + 1 FROM payloads").get or 1
            )
        if len(self._ends) > ENDS_MAX:
            self._ends.clear()
        for first in range(0, len(rows), INSERTED_AT_ONCE):
            some = rows[first : first + INSERTED_AT_ONCE]
            payload_ids = range(self._next_payload_id, self._next_payload_id + len(some))
            self._next_payload_id += len(some)
            payloads = [
                value
                for payload_id, row in zip(payload_ids, some, strict=True)
                for value in (payload_id, row.payload)
            ]
            columns = [
                value
                for payload_id, row in zip(payload_ids, some, strict=True)
                for value in self._columns(connection, row, payload_id)
            ]
            connection.execute(insert_payloads(len(some)), [*payloads[:2], LOG_SLOT, epoch, *payloads[2:]])
            if connection.changes() != len(some):
                return False
            connection.execute(f"INSERT INTO headers VALUES {placeholders(WIDTH, len(some))}", columns)
        return True

    def _columns(self, connection: apsw.Connection, row: Row, payload_id: int) -> Columns:
        end = self._ends.get(row.log_id) or end_of(connection, row.log_id)
        end = End(end.bytes_until + len(row.payload), max(end.latest_ms, row.header.max_timestamp_ms))
        self._ends[row.log_id] = end
        return checked_columns(row, end, payload_id)

    def drop(self, connection: apsw.Connection, log_id: int, before_offset: int | None) -> int:
        """
        Delete some of the rows that end before the offset, or of all rows, and return their bytes; 0: none is left.
        """
        self._ends.pop(log_id, None)
        first = first_row(connection, log_id)
        if first is None:
            return 0
        bytes_until = first[BYTES_UNTIL] + DROPPED_BYTES
        last_offset = connection.execute(
            "SELECT max(base_offset) FROM (SELECT * FROM headers WHERE log_id = ?1 ORDER BY base_offset LIMIT ?5) "
            "WHERE (?2 IS NULL OR base_offset + count <= ?2) AND (bytes_until <= ?3 OR base_offset = ?4)",
            (log_id, before_offset, bytes_until, first[1], DROPPED_ROWS),
        ).get
        if last_offset is None:
            return 0
        last = (log_id, last_offset)
        freed_bytes = connection.execute(
            f"SELECT {STORED_BYTES} FROM headers WHERE log_id = ? AND base_offset <= ?", last
        ).get
        connection.execute(
            "DELETE FROM payloads WHERE payload_id IN "
            "(SELECT payload_id FROM headers WHERE log_id = ? AND base_offset <= ?)",
            last,
        )
        connection.execute("DELETE FROM headers WHERE log_id = ? AND base_offset <= ?", last)
        return int(freed_bytes)

    def rewrite(self, connection: apsw.Connection, log_id: int, changes: Sequence[Change]) -> int:
        """
        Replace or delete rows, and return the bytes that this frees.

        Rows that are gone stay gone. Running totals stay as they are: those of the rows behind would change, too.
        """
        freed_bytes = 0
        for header, row in changes:
            stored = connection.execute(
                f"SELECT {COLUMNS} FROM headers WHERE log_id = ? AND base_offset = ?",
                (log_id, header.base_offset),
            ).fetchone()
            if stored is None:
                continue  # deleted by retention, or with its topic
            freed_bytes += stored[BYTES]
            if row is None:
                freed_bytes += ROW_BYTES
                connection.execute(
                    "DELETE FROM headers WHERE log_id = ? AND base_offset = ?", (log_id, header.base_offset)
                )
                connection.execute("DELETE FROM payloads WHERE payload_id = ?", (stored[PAYLOAD_ID],))
                continue
            freed_bytes -= len(row.payload)
            self._replace(connection, stored, row)
        return freed_bytes

    def _replace(self, connection: apsw.Connection, stored: Columns, row: Row) -> None:
        """Write another header and payload in the place of a stored row."""
        payload_id = stored[PAYLOAD_ID]
        columns = checked_columns(row, End(*stored[BYTES_UNTIL : LATEST_MS + 1]), payload_id)
        connection.execute("UPDATE payloads SET data = ? WHERE payload_id = ?", (row.payload, payload_id))
        connection.execute(f"REPLACE INTO headers VALUES {placeholders(WIDTH, 1)}", columns)


def checked_columns(row: Row, end: End, payload_id: int) -> Columns:
    """Return the columns of a row's header, with the running totals `end` and both checksums."""
    columns = (
        row.log_id,
        *row.header,
        row.appended_ms,
        row.codec,
        len(row.payload),
        *end,
        payload_id,
        zlib.crc32(row.payload),
    )
    return *columns, zlib.crc32(CHECKED.pack(*columns))


def insert_payloads(count: int) -> str:
    """
    Return the statement that inserts payloads; only the first has the epoch condition, as one on all would copy them.
    """
    others = f" UNION ALL VALUES {placeholders(2, count - 1)}" if count > 1 else ""
    return f"INSERT INTO payloads SELECT ?, ? WHERE {AT_EPOCH}{others}"


def placeholders(width: int, count: int) -> str:
    """Return the placeholders of `count` rows with `width` columns."""
    row = f"({', '.join('?' * width)})"
    return ", ".join([row] * count)


def end_of(connection: apsw.Connection, log_id: int) -> End:
    """Return the running totals that the next row of the log continues."""
    last = connection.execute(
        "SELECT bytes_until, latest_ms FROM headers WHERE log_id = ? ORDER BY base_offset DESC LIMIT 1",
        (log_id,),
    ).fetchone()
    return End(*last) if last else End(0, -1)


def first_row(connection: apsw.Connection, log_id: int) -> Columns | None:
    """Return the first row of the log as stored; None: the log is empty."""
    return connection.execute(
        f"SELECT {COLUMNS} FROM headers WHERE log_id = ? ORDER BY base_offset LIMIT 1", (log_id,)
    ).fetchone()


def is_underfilled(rows: Sequence[Columns], until: int, max_bytes: int) -> bool:
    """Return whether a read has less than half of the bytes although more rows follow: the log may have been compacted."""
    if not rows or len(rows) == READ_ROWS:
        return False
    base_offset, count = rows[-1][1:3]
    read_bytes = sum(int(row[BYTES]) for row in rows)
    return read_bytes < max_bytes // 2 and int(base_offset + count) < until


class RowReader:
    """
    Queries of the rows, each on a given connection; `where` names the file in errors about damaged rows.

    Invariant: every statement is read to its end before a row is decoded. A statement that a damaged row ends early
    would keep its snapshot, and the next reader of that connection would not see later writes.
    """

    def __init__(self, where: str) -> None:
        self._where = where

    def headers(self, connection: apsw.Connection, behind: tuple[int, int]) -> list[tuple[int, Header]]:
        """Return the next headers after a position, which is a log id and an offset."""
        rows: list[Columns] = connection.execute(
            f"SELECT {COLUMNS} FROM headers WHERE (log_id, base_offset) > (?, ?) ORDER BY log_id, base_offset LIMIT ?",
            (*behind, HEADERS_AT_ONCE),
        ).fetchall()
        return [(row[0], self._header(row)) for row in rows]

    def read(
        self, connection: apsw.Connection, log_id: int, span: tuple[int, int], max_bytes: int
    ) -> list[Row]:
        """Return rows from the one that contains the first offset of the span, or from the next one."""
        bounds = (log_id, *span, max_bytes, READ_ROWS)
        rows: list[Columns] = connection.execute(READ, bounds).fetchall()
        if is_underfilled(rows, span[1], max_bytes):
            rows = connection.execute(READ_COMPACTED, bounds).fetchall()
        found: list[Row] = []
        for columns in rows:
            try:
                found.append(self._row(columns))
            except DamagedBatch:
                if not found:
                    raise
                # Return the rows before the damaged one; the next read starts there and raises the error.
                break
        return found

    def _row(self, columns: Columns) -> Row:
        header, data = self._header(columns), columns[DATA]
        row = Row(columns[0], header, columns[APPENDED_MS], columns[CODEC], data or b"")
        if data is None or zlib.crc32(data) != columns[PAYLOAD_CHECKSUM]:
            raise batches.damaged_batch(self._batch_name(columns), row)
        return row

    def first_at(self, connection: apsw.Connection, log_id: int, timestamp_ms: int) -> Header | None:
        """Return the first batch with a record at this timestamp or later."""
        found = connection.execute(
            f"SELECT {COLUMNS} FROM headers WHERE log_id = ? AND latest_ms >= ? ORDER BY latest_ms, base_offset LIMIT 1",
            (log_id, timestamp_ms),
        ).fetchone()
        header = self._header(found) if found else None
        if header is None or header.max_timestamp_ms >= timestamp_ms:
            return header
        # The timestamp was reached by a row that has been deleted.
        found = connection.execute(
            f"SELECT {COLUMNS} FROM headers WHERE log_id = ? AND base_offset > ? AND max_timestamp_ms >= ? "
            "ORDER BY base_offset LIMIT 1",
            (log_id, header.base_offset, timestamp_ms),
        ).fetchone()
        return self._header(found) if found else None

    def oldest(self, connection: apsw.Connection, log_id: int, count: int) -> list[Oldest]:
        """Return the first `count` batches of the log."""
        rows: list[Columns] = connection.execute(
            f"SELECT {COLUMNS} FROM headers WHERE log_id = ? ORDER BY base_offset LIMIT ?", (log_id, count)
        ).fetchall()
        return [Oldest(self._header(row), row[BYTES]) for row in rows]

    def size(self, connection: apsw.Connection, log_id: int) -> int:
        """Return the total payload bytes of the log; before compaction, which leaves the running totals as they were."""
        return int(
            connection.execute(
                "SELECT coalesce((SELECT bytes_until FROM headers WHERE log_id = ?1 ORDER BY base_offset DESC LIMIT 1)"
                " - (SELECT bytes_until - bytes FROM headers WHERE log_id = ?1 ORDER BY base_offset LIMIT 1), 0)",
                (log_id,),
            ).get
        )

    def size_between(self, connection: apsw.Connection, log_id: int, span: tuple[int, int]) -> int:
        """Return the payload bytes of the rows that begin in the span; reads all their headers."""
        return int(
            connection.execute(
                "SELECT coalesce(sum(bytes), 0) FROM headers WHERE log_id = ? AND base_offset >= ? AND base_offset < ?",
                (log_id, *span),
            ).get
        )

    def sizes(self, connection: apsw.Connection) -> dict[int, int]:
        """Return the bytes of each log that has rows, see `stored_bytes`."""
        rows = connection.execute(f"SELECT log_id, {STORED_BYTES} FROM headers GROUP BY log_id")
        return {int(log_id): int(size) for log_id, size in rows}

    def _header(self, row: Columns) -> Header:
        if zlib.crc32(CHECKED.pack(*row[:CHECKSUM])) != row[CHECKSUM]:
            raise batches.damaged_batch(self._batch_name(row))
        *numbers, transactional, control = row[HEADER]
        return Header._make((*numbers, bool(transactional), Control(control)))

    def _batch_name(self, row: Columns) -> str:
        return f"the batch at offset {row[1]} of log {row[0]} in {self._where}"
