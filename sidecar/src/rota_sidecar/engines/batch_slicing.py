"""
Parts of batches, made fit for the application: whole batches pass as they are, a part of one is packed anew.

The delivery's shell asks for what it hands over, and `dead_letters.py` for single records. What was unpacked is kept
for a while: with one record of a key at a time, a batch goes out in as many parts as it has records.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeVar, cast

from rota_proto.log.columns import CODEC, Columns, MalformedPayload, pack, unpack, verify
from rota_proto.log.v1 import log_pb2
from rota_sidecar.core.ledger.batches import Batch, BatchSlice

RecordBatch = log_pb2.RecordBatch
Cell = TypeVar("Cell")
# As much as lies read at a time with the usual settings: with less of it a batch would be unpacked for each of its records.
UNPACKED_BYTES_MAX = 16 << 20


class BatchSlicer:
    """One for all that is delivered."""

    def __init__(self, bytes_max: int = UNPACKED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._unpacked: OrderedDict[Batch, Columns] = OrderedDict()

    def batch_for(self, batch_slice: BatchSlice) -> RecordBatch:
        """
        What holds these records, ready to be sent. It may begin before the piece, and never ends after it.

        Raises MalformedPayload.
        """
        whole = content_of(batch_slice.batch)
        # From its middle on a batch is sent whole, where that is not much more than what is meant.
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
        """The records of the whole payload, which may begin before the batch. Raises MalformedPayload."""
        known = self._unpacked.get(batch)
        if known is not None:
            self._unpacked.move_to_end(batch)
            return known
        columns = columns_in(content_of(batch))
        self._unpacked[batch] = columns
        self._bytes += batch.size
        while self._bytes > self._bytes_max and len(self._unpacked) > 1:
            forgotten, _ = self._unpacked.popitem(last=False)
            self._bytes -= forgotten.size
        return columns


def content_of(batch: Batch) -> RecordBatch:
    """What the engines put into a batch."""
    return cast("RecordBatch", batch.payload)


def columns_in(content: RecordBatch) -> Columns:
    """Its records. Raises MalformedPayload."""
    _check_codec(content)
    return unpack(content.payload, content.count, content.base_timestamp_ms)


def check(content: RecordBatch) -> None:
    """Raises MalformedPayload when its records cannot be unpacked."""
    _check_codec(content)
    verify(content.payload, content.count, content.base_timestamp_ms)


def _check_codec(content: RecordBatch) -> None:
    if content.codec != CODEC:
        raise MalformedPayload(
            f"the records at offset {content.base_offset} are of kind {content.codec}, unknown here: update the sidecar"
        )


def part_of(columns: Columns, start: int, end: int) -> Columns:
    """Some of the records, counted from the first one of the columns."""

    def cut(column: Sequence[Cell] | None) -> Sequence[Cell] | None:
        return None if column is None else column[start:end]

    return Columns(cut(columns.values), cut(columns.keys), cut(columns.timestamps_ms), cut(columns.headers))
