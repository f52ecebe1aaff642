"""What the log knows of a batch of records, and a batch as it lies in the store. Used by all of the log and by the store."""

import enum
from typing import NamedTuple

NO_PRODUCER = -1
NO_SEQUENCE = -1


class Control(enum.IntEnum):
    """What a batch is: records of an application, or the log's own word about the end of a transaction."""

    RECORDS = 0
    COMMIT = 1
    ABORT = 2


class Header(NamedTuple):
    """All that the log knows of a batch without looking into it. Loading makes one for each batch in the file."""

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
    """A batch as it is written."""

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
