"""Headers of batches, and rows as the store keeps them. Used by all of the log and by the store."""

import enum
from typing import NamedTuple

NO_PRODUCER = -1
NO_SEQUENCE = -1


class Control(enum.IntEnum):
    """The kind of a batch: records of an application, or a marker that ends a transaction."""

    RECORDS = 0
    COMMIT = 1
    ABORT = 2


class Header(NamedTuple):
    """The header of a batch, without its records. Loading creates one for each batch in the file."""

    base_offset: int
    count: int  # type: ignore[assignment]  # hides tuple's method, which nobody needs of a header
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int  # NO_PRODUCER: not idempotent
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: Control

    @property
    def next_offset(self) -> int:
        """Of the record behind the batch."""
        return self.base_offset + self.count


class Row(NamedTuple):
    """A batch as it is stored."""

    log_id: int
    header: Header
    appended_ms: int
    codec: int
    payload: bytes


# About what the store needs for a row beside its payload.
ROW_BYTES = 256


def stored_bytes(row: Row) -> int:
    """The bytes of a row that count for a quota: many small batches fill a disk too."""
    return len(row.payload) + ROW_BYTES
