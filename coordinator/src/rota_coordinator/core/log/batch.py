"""Batch headers, and rows as the store writes them. Used by the log core, the shell and the store."""

import enum
from typing import NamedTuple

NO_PRODUCER = -1
NO_SEQUENCE = -1
NO_EPOCH = -1


class Control(enum.IntEnum):
    """The kind of a batch: records of an application, or a marker that ends a transaction."""

    RECORDS = 0
    COMMIT = 1
    ABORT = 2


class Header(NamedTuple):
    """The header of a batch, without its records. Loading creates one for each batch in the file."""

    base_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int  # NO_PRODUCER: not idempotent
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: Control

    @property
    def next_offset(self) -> int:
        """The offset of the first record after the batch."""
        return self.base_offset + self.count


class Row(NamedTuple):
    """A batch with its payload, as stored: one row of the log `log_id`."""

    log_id: int
    header: Header
    appended_ms: int
    codec: int
    payload: bytes


# Approximate storage overhead of a row, in bytes, in addition to its payload.
ROW_BYTES = 256


def stored_bytes(row: Row) -> int:
    """Return the bytes of a row that count towards a quota: its payload and the overhead of a row."""
    return len(row.payload) + ROW_BYTES
