"""Batches as bytes: put together by hand, and read by protobuf."""

import pytest

from rota_coordinator.store import batches
from rota_proto.coordinator.v1.records_pb2 import RecordBatch
from tests.coordinator.store.records import record

# A record's length is written with one byte more from 128, 16,384 and 2,097,152 bytes on.
LENGTHS = (
    0,
    1,
    100,
    115,
    116,
    117,
    118,
    119,
    120,
    121,
    122,
    123,
    124,
    125,
    126,
    127,
    128,
    129,
    20_000,
    3_000_000,
)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_batch_is_what_protobuf_would_make_of_it(length: int) -> None:
    records = [record(1, "g" * length), record(2), record(3, "h" * length)]
    data, checksum = batches.encode(records)
    assert data == RecordBatch(records=records).SerializeToString()
    assert batches.decode_all([(1, data, checksum)], "slot 1") == records


def test_batches_are_read_in_their_order_however_many_there_are() -> None:
    count = 2 * batches.PARSED_AT_ONCE + 1
    rows = [(number, *batches.encode([record(number), record(-number)])) for number in range(1, count + 1)]
    expected = [record(each) for number in range(1, count + 1) for each in (number, -number)]
    assert batches.decode_all(rows, "slot 1") == expected


def test_an_empty_log_has_no_records() -> None:
    assert batches.decode_all([], "slot 1") == []
    assert batches.decode_all([(1, *batches.encode([]))], "slot 1") == []
