"""
Encode batches whose offsets have gaps, and split them into batches without gaps.

Compaction removes records from the middle of batches, and offsets never change. A row with gaps keeps base offset and count in its
header, so the store finds it as any other. Its codec is SPARSE plus the codec of its compression; decompressed, the payload is a
bitmap with one bit for each offset of the header, followed by the columns of the records that are left. Sparse rows exist in the
store only: `fetches` sends readers the batches that `split` returns.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rota_coordinator.core.log.batch import NO_EPOCH, NO_PRODUCER, NO_SEQUENCE, Row
from rota_proto.log.columns import CODEC, Columns, pack, unpack
from rota_proto.log.compression import compress, decompress

# Added to the codec of the compression, one byte.
SPARSE = 0x100
COMPRESSION = 0xFF


class Records(NamedTuple):
    """The records of a row. Invariant: `offsets` ascend, and each column has one element for each of them."""

    offsets: Sequence[int]
    columns: Columns

    def keys(self) -> Sequence[bytes | None]:
        """Return the key of each record."""
        return [None] * len(self.offsets) if self.columns.keys is None else self.columns.keys

    def values(self) -> Sequence[bytes | None]:
        """Return the value of each record."""
        return [None] * len(self.offsets) if self.columns.values is None else self.columns.values


def is_sparse(row: Row) -> bool:
    """Return whether the offsets of a row have gaps."""
    return bool(row.codec & SPARSE)


def records_of(row: Row) -> Records:
    """Decode a row, sparse or not. Raises MalformedPayload."""
    header = row.header
    payload = decompress(row.codec & COMPRESSION if is_sparse(row) else row.codec, row.payload)
    if not is_sparse(row):
        offsets: Sequence[int] = range(header.base_offset, header.next_offset)
        return Records(offsets, unpack(payload, header.count, header.base_timestamp_ms))
    bitmap = payload[: size_of_bitmap(header.count)]
    offsets = [header.base_offset + delta for delta in range(header.count) if has_bit(bitmap, delta)]
    return Records(offsets, unpack(payload[len(bitmap) :], len(offsets), header.base_timestamp_ms))


def without_producer(row: Row) -> Row:
    """
    Return the row as one of no producer and no transaction.

    Committed records need neither any more; the marker of their transaction can then be removed.
    """
    header = row.header._replace(
        producer_id=NO_PRODUCER, producer_epoch=NO_EPOCH, base_sequence=NO_SEQUENCE, transactional=False
    )
    return row._replace(header=header)


def with_records(row: Row, records: Records, kept: Sequence[int]) -> Row:
    """Return the sparse row that has these records of a row, given by their indices, of which there is at least one."""
    header = row.header
    columns = select(records.columns, kept)
    bitmap = bytearray(size_of_bitmap(header.count))
    for index in kept:
        delta = records.offsets[index] - header.base_offset
        bitmap[delta // 8] |= 1 << delta % 8
    columns_payload = pack(columns, len(kept), header.base_timestamp_ms)
    codec, payload = compress(row.codec & COMPRESSION, bytes(bitmap) + columns_payload)
    return without_producer(
        row._replace(
            header=header._replace(max_timestamp_ms=latest_ms(columns, header.base_timestamp_ms)),
            codec=codec | SPARSE,
            payload=payload,
        )
    )


def split(row: Row) -> Iterator[Row]:
    """Yield the records of a sparse row as rows without gaps and without compression. Raises MalformedPayload."""
    records = records_of(row)
    first = 0
    for index in range(1, len(records.offsets) + 1):
        is_last = index == len(records.offsets)
        if not is_last and records.offsets[index] == records.offsets[index - 1] + 1:
            continue
        columns = select(records.columns, range(first, index))
        header = row.header._replace(
            base_offset=records.offsets[first],
            count=index - first,
            max_timestamp_ms=latest_ms(columns, row.header.base_timestamp_ms),
        )
        payload = pack(columns, header.count, header.base_timestamp_ms)
        yield row._replace(header=header, codec=CODEC, payload=payload)
        first = index


def select(columns: Columns, kept: Sequence[int]) -> Columns:
    """Return the columns of these records, given by their indices."""
    values, keys, timestamps_ms, headers = columns
    return Columns(
        None if values is None else [values[index] for index in kept],
        None if keys is None else [keys[index] for index in kept],
        None if timestamps_ms is None else [timestamps_ms[index] for index in kept],
        None if headers is None else [headers[index] for index in kept],
    )


def latest_ms(columns: Columns, base_timestamp_ms: int) -> int:
    """Return the latest timestamp of a batch."""
    return base_timestamp_ms if columns.timestamps_ms is None else max(columns.timestamps_ms)


def size_of_bitmap(count: int) -> int:
    """Return the bytes of a bitmap with one bit for each of `count` offsets."""
    return (count + 7) // 8


def has_bit(bitmap: bytes, number: int) -> bool:
    """Return whether a bit is set; bits beyond the end are not."""
    byte, bit = divmod(number, 8)
    return byte < len(bitmap) and bool(bitmap[byte] >> bit & 1)
