"""
Slices of record batches for the application: a whole batch is passed through unchanged, a part of one is repacked.

Used by the application's services for the records that they send, and by `delivery/dead_letters.py` for single records.
Unpacked batches are cached, least recently used first out: with ordering by key a batch leaves in up to as many slices as
it has records.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeVar, cast

from rota_proto.log.columns import CODEC, Columns, MalformedPayload, pack, unpack, verify
from rota_proto.log.v1 import log_pb2
from rota_sidecar.core.ledger.batches import Batch, BatchSlice

RecordBatch = log_pb2.RecordBatch
Cell = TypeVar("Cell")
# As many bytes as are read ahead with the default settings. A smaller cache would unpack a batch once for each record.
UNPACKED_BYTES_MAX = 16 << 20


class BatchSlicer:
    """
    A cache of unpacked batches, shared by all deliveries of a sidecar.

    Invariant: the cached batches have at most `bytes_max` bytes together, or there is only one.
    """

    def __init__(self, bytes_max: int = UNPACKED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._unpacked: OrderedDict[Batch, Columns] = OrderedDict()

    def batch_for(self, batch_slice: BatchSlice) -> RecordBatch:
        """
        Return a batch that contains the slice. It may begin before the slice, and ends with it.

        Raises MalformedPayload.
        """
        whole = content_of(batch_slice.batch)
        # A slice that is the second half of a batch, or more, is not repacked: the whole batch costs at most twice the bytes.
        if batch_slice.end == whole.base_offset + whole.count and 2 * batch_slice.count >= whole.count:
            return whole
        start, end = batch_slice.first - whole.base_offset, batch_slice.end - whole.base_offset
        columns = part_of(self.columns_of(batch_slice.batch), start, end)
        times = columns.timestamps_ms
        base_timestamp_ms = whole.base_timestamp_ms if times is None else times[0]
        return RecordBatch(
            base_offset=batch_slice.first,
            base_timestamp_ms=base_timestamp_ms,
            max_timestamp_ms=base_timestamp_ms if times is None else max(times),
            count=batch_slice.count,
            codec=CODEC,
            payload=pack(columns, batch_slice.count, base_timestamp_ms),
            producer_id=-1,
        )

    def columns_of(self, batch: Batch) -> Columns:
        """Return the columns of the whole payload, which may begin before the batch. Raises MalformedPayload."""
        known = self._unpacked.get(batch)
        if known is not None:
            self._unpacked.move_to_end(batch)
            return known
        columns = columns_in(content_of(batch))
        self._unpacked[batch] = columns
        self._bytes += batch.size
        while self._bytes > self._bytes_max and len(self._unpacked) > 1:
            evicted, _ = self._unpacked.popitem(last=False)
            self._bytes -= evicted.size
        return columns


def content_of(batch: Batch) -> RecordBatch:
    """Return the payload that a backend has put into a batch."""
    return cast("RecordBatch", batch.payload)


def columns_in(content: RecordBatch) -> Columns:
    """Unpack the records of a batch. Raises MalformedPayload."""
    _check_codec(content)
    return unpack(content.payload, content.count, content.base_timestamp_ms)


def check(content: RecordBatch) -> None:
    """Verify that the records can be unpacked. Raises MalformedPayload."""
    _check_codec(content)
    verify(content.payload, content.count, content.base_timestamp_ms)


def _check_codec(content: RecordBatch) -> None:
    if content.codec != CODEC:
        raise MalformedPayload(
            f"unknown codec {content.codec} of the batch at offset {content.base_offset}; update the sidecar"
        )


def part_of(columns: Columns, start: int, end: int) -> Columns:
    """Return the records from `start` to before `end`, as indexes into the columns."""

    def cut(column: Sequence[Cell] | None) -> Sequence[Cell] | None:
        return None if column is None else column[start:end]

    return Columns(cut(columns.values), cut(columns.keys), cut(columns.timestamps_ms), cut(columns.headers))
