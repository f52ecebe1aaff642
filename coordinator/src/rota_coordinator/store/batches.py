"""Encoding of an appended batch: its records as protobuf bytes, with a checksum that detects damaged files."""

import zlib
from collections.abc import Iterable, Sequence

from rota_coordinator.core.log.batch import Row
from rota_coordinator.store.port import DamagedBatch
from rota_proto.coordinator.v1.records_pb2 import Record, RecordBatch

# Batches that are parsed in one call, because a call costs more than the parsing.
PARSED_AT_ONCE = 1_000
# Protobuf's wire format: the tag of field 1 with a length, and the varint's 7 value bits per byte.
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
    """
    Return the encoded RecordBatch and its checksum; encoded here, because a RecordBatch message would copy each record.
    """
    parts = []
    for record in records:
        data = record.SerializeToString()
        size = len(data)
        parts.append(SMALL_HEADERS[size] if size < ONE_BYTE else header(size))
        parts.append(data)
    batch = b"".join(parts)
    return batch, zlib.crc32(batch)


def decode(data: bytes, checksum: int, where: str) -> Sequence[Record]:
    """Return the records of a batch; raise DamagedBatch, which names `where`, on a wrong checksum."""
    if zlib.crc32(data) != checksum:
        raise damaged_batch(where)
    return RecordBatch.FromString(data).records


def decode_all(rows: Iterable[tuple[int, bytes, int]], where: str) -> list[Record]:
    """
    Return the records of a log, given as the sequence number, data and checksum of each batch.

    Concatenated batches parse as one batch with the records of all, because protobuf encodes repeated fields element
    by element.
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
