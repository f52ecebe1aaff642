"""Packs the columns of consecutive records into batches. Called by `batching.py` and by `python_client/record_set.py`."""

from rota_proto.log.columns import CODEC, HEADERS_MAX, RECORDS_MAX, Columns, pack
from rota_proto.log.v1 import log_pb2
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.engines.batch_slicing import part_of

# Several batches of this size fit into one message to the application.
BATCH_BYTES_MAX = 512 << 10


def packed(first: int, count: int, columns: Columns, *, with_keys: bool) -> list[Batch]:
    """
    Return the records from offset `first` on as batches, each within `BATCH_BYTES_MAX` or of one record.

    The timestamps must be given, for each record.
    """
    times = columns.timestamps_ms or ()
    payload = pack(columns, count, times[0]) if _fits(columns, count) else None
    if payload is None or (len(payload) > BATCH_BYTES_MAX and count > 1):
        half = count // 2
        return [
            *packed(first, half, part_of(columns, 0, half), with_keys=with_keys),
            *packed(first + half, count - half, part_of(columns, half, count), with_keys=with_keys),
        ]
    content = log_pb2.RecordBatch(
        base_offset=first,
        base_timestamp_ms=times[0],
        max_timestamp_ms=max(times),
        count=count,
        codec=CODEC,
        payload=payload,
        producer_id=-1,
    )
    return [Batch(first, count, len(payload), content, columns.keys if with_keys else None)]


def _fits(columns: Columns, count: int) -> bool:
    """Return whether the counts are within the limits of a payload; a single record is packed in any case."""
    if count == 1:
        return True
    headers = 0 if columns.headers is None else sum(map(len, columns.headers))
    return count <= RECORDS_MAX and headers <= HEADERS_MAX
