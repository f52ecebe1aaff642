"""Parts of batches hold exactly the records that are meant, and whole batches pass untouched."""

from collections.abc import Sequence

import pytest

from rota_proto.log.columns import Columns, MalformedPayload, pack, unpack
from rota_proto.log.v1 import log_pb2
from rota_sidecar.core.ledger.batches import Batch, BatchSlice
from rota_sidecar.engines.batch_slicing import BatchSlicer, columns_in

BASE_MS = 1_000
COLUMNS = Columns(
    values=[b"a", None, b"c", b"d", b"e", b"f"],
    keys=[b"1", b"2", None, b"4", b"5", b"6"],
    timestamps_ms=[1_000, 1_001, 1_002, 1_003, 900, 1_005],
    headers=[(), (("h", b"x"), ("n", None)), (), (), (), ()],
)


def batch(columns: Columns = COLUMNS, *, base_offset: int = 10, first: int = 10, count: int = 6) -> Batch:
    payload = pack(columns, count, BASE_MS)
    content = log_pb2.RecordBatch(
        base_offset=base_offset, base_timestamp_ms=BASE_MS, count=count, payload=payload
    )
    return Batch(first, base_offset + count - first, len(payload), content)


def rows(content: log_pb2.RecordBatch) -> Sequence[tuple[object, ...]]:
    """Offset, value, key, timestamp and headers of each record."""
    values, keys, times, headers = columns_in(content)
    nothing = [None] * content.count
    return list(
        zip(
            range(content.base_offset, content.base_offset + content.count),
            values or nothing,
            keys or nothing,
            times or [content.base_timestamp_ms] * content.count,
            headers or [()] * content.count,
            strict=True,
        )
    )


def test_a_whole_batch_is_sent_as_it_is() -> None:
    whole = batch()
    assert BatchSlicer().batch_for(BatchSlice(whole, 10, 16)) is whole.payload


def test_the_second_half_of_a_batch_is_sent_with_the_first() -> None:
    whole = batch()
    assert BatchSlicer().batch_for(BatchSlice(whole, 13, 16)) is whole.payload


def test_the_last_record_of_a_large_batch_is_sent_alone() -> None:
    sent = BatchSlicer().batch_for(BatchSlice(batch(), 15, 16))
    assert rows(sent) == [(15, b"f", b"6", 1_005, ())]


@pytest.mark.parametrize(("first", "end"), [(10, 11), (11, 12), (10, 15), (12, 14), (13, 15)])
def test_a_part_has_its_records_with_all_that_belongs_to_them(first: int, end: int) -> None:
    sent = BatchSlicer().batch_for(BatchSlice(batch(), first, end))
    whole = batch().payload
    assert isinstance(whole, log_pb2.RecordBatch)
    assert rows(sent) == rows(whole)[first - 10 : end - 10]
    times = columns_in(sent).timestamps_ms or [sent.base_timestamp_ms]
    assert (sent.max_timestamp_ms, sent.producer_id) == (max(times), -1)


def test_offsets_count_from_the_payload_where_a_batch_was_read_from_its_middle() -> None:
    sent = BatchSlicer().batch_for(BatchSlice(batch(first=12), 12, 13))
    assert rows(sent) == [(12, b"c", None, 1_002, ())]


def test_columns_that_all_records_share_stay_shared() -> None:
    sent = BatchSlicer().batch_for(BatchSlice(batch(Columns(values=COLUMNS.values)), 10, 12))
    assert rows(sent) == [(10, b"a", None, BASE_MS, ()), (11, None, None, BASE_MS, ())]


def test_a_batch_is_unpacked_once_for_all_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[bytes] = []

    def counted(payload: bytes, count: int, base_timestamp_ms: int) -> Columns:
        unpacked.append(payload)
        return unpack(payload, count, base_timestamp_ms)

    monkeypatch.setattr("rota_sidecar.engines.batch_slicing.unpack", counted)
    slicer, whole = BatchSlicer(), batch()
    for offset in range(10, 15):
        slicer.batch_for(BatchSlice(whole, offset, offset + 1))
    assert len(unpacked) == 1


def test_unpacked_batches_above_the_limit_are_evicted_and_unpacked_again() -> None:
    batches = [batch() for _ in range(4)]
    slicer = BatchSlicer(bytes_max=2 * batches[0].size)
    first = slicer.columns_of(batches[0])
    for each in batches[1:]:
        slicer.columns_of(each)
    again = slicer.columns_of(batches[0])
    assert again == first
    assert again is not first
    assert slicer.columns_of(batches[3]) is slicer.columns_of(batches[3])


def test_a_batch_above_the_limit_is_unpacked_all_the_same() -> None:
    slicer, large = BatchSlicer(bytes_max=1), batch()
    assert slicer.columns_of(large) is slicer.columns_of(large)


def test_records_of_a_later_version_are_named() -> None:
    content = log_pb2.RecordBatch(base_offset=10, count=6, codec=7)
    with pytest.raises(
        MalformedPayload, match="unknown codec 7 of the batch at offset 10; update the sidecar"
    ):
        BatchSlicer().batch_for(BatchSlice(Batch(10, 6, 1, content), 10, 11))


def test_damaged_records_are_named_and_not_kept() -> None:
    damaged = Batch(10, 6, 1, log_pb2.RecordBatch(base_offset=10, count=6, payload=b"\x04b"))
    slicer = BatchSlicer()
    for _ in range(2):
        with pytest.raises(MalformedPayload):
            slicer.columns_of(damaged)
