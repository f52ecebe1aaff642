"""One appended batch as bytes: the records, with a checksum, so that a damaged file is noticed and not believed."""

import zlib
from collections.abc import Iterable, Sequence

from rota_coordinator.core.log.batch import Row
from rota_coordinator.store.port import DamagedBatch
from rota_proto.coordinator.v1.records_pb2 import Record, RecordBatch

# How many batches of a log are parsed at once: parsing is cheap, and each call of it is not.
PARSED_AT_ONCE = 1_000
# Of protobuf's encoding: field 1, with a length; and what a byte of a number holds, the bit that says "and more" apart.
RECORDS_TAG = RecordBatch.RECORDS_FIELD_NUMBER << 3 | 2
ONE_BYTE = 128


def header(size: int) -> bytes:
    """Return the tag and the varint length before a record in a protobuf batch."""
    written = bytearray([RECORDS_TAG])
    while size >= ONE_BYTE:
        written.append(size % ONE_BYTE | ONE_BYTE)
        size //= ONE_BYTE
    written.append(size)
    return bytes(written)


SMALL_HEADERS = tuple(header(size) for size in range(ONE_BYTE))


def encode(records: Iterable[Record]) -> tuple[bytes, int]:
    """The bytes, and their checksum. Put together by hand: to make a RecordBatch would copy every record first."""
    parts = []
    for record in records:
        data = record.SerializeToString()
        size = len(data)
        parts.append(SMALL_HEADERS[size] if size < ONE_BYTE else header(size))
        parts.append(data)
    batch = b"".join(parts)
    return batch, zlib.crc32(batch)


def decode(data: bytes, checksum: int, where: str) -> Sequence[Record]:
    """The records of a batch; `where` is said when it is damaged."""
    if zlib.crc32(data) != checksum:
        raise damaged_batch(where)
    return RecordBatch.FromString(data).records


def decode_all(rows: Iterable[tuple[int, bytes, int]], where: str) -> list[Record]:
    """
    The records of a log, given as the sequence, data and checksum of each batch.

    Batches that are put one after the other read as one batch with the records of all: that is how protobuf lays
    out a repeated field.
    """
    records: list[Record] = []
    atomic: list[bytes] = []
    for sequence, data, checksum in rows:
        if zlib.crc32(data) != checksum:
            raise damaged_batch(f"batch {sequence} of {where}")
        atomic.append(data)
        if len(atomic) == PARSED_AT_ONCE:
            records += RecordBatch.FromString(b"".join(atomic)).records
            atomic.clear()
    records += RecordBatch.FromString(b"".join(atomic)).records
    return records


def damaged_batch(where: str, row: Row | None = None) -> DamagedBatch:
    """Return the error for a batch with a wrong checksum."""
    return DamagedBatch(f"{where} is damaged (checksum mismatch); restore the store from a backup", row)
