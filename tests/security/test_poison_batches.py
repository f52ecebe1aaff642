"""A producer's batch is appended when every reader can read it; any other one is refused whole, in a sentence."""

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.columns import (
    RECORDS_MAX,
    Columns,
    Header,
    MalformedPayload,
    first_at,
    pack,
    unpack,
    verify,
)
from rota_proto.log.v1 import log_pb2 as pb
from tests.log.engine import START_MS, Engine

SAME_ONE = b"=" + (1).to_bytes(8, "little")
SAME_HUGE = b"=" + (2**62).to_bytes(8, "little")
SAME_MINUS_TWO = b"=" + (-2).to_bytes(8, "little", signed=True)
EMPTY = b"=" + bytes(8)


def good() -> pb.RecordBatch:
    """Three records with all that a record may have."""
    times = [START_MS, START_MS + 5, START_MS + 2]
    headers: list[list[Header]] = [[("trace", b"1")], [], [("größe", None), ("x", b"")]]
    columns = Columns([b"a", None, b"ccc"], [b"k", b"k", None], times, headers)
    return pb.RecordBatch(
        count=3,
        payload=pack(columns, 3, START_MS),
        base_timestamp_ms=START_MS,
        max_timestamp_ms=START_MS + 5,
        producer_id=-1,
    )


def change(**fields: int | bytes) -> Callable[[pb.RecordBatch], None]:
    def apply(batch: pb.RecordBatch) -> None:
        for name, value in fields.items():
            setattr(batch, name, value)

    return apply


def cut(batch: pb.RecordBatch) -> None:
    batch.payload = batch.payload[:-1]


def lengthen(batch: pb.RecordBatch) -> None:
    batch.payload += b"\0"


CORRUPT = codes.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("poison", "error", "message"),
    [
        (change(count=2**31 - 1), codes.INVALID_RECORD, "at most 1,000,000"),
        (change(count=RECORDS_MAX + 1), codes.INVALID_RECORD, "at most 1,000,000"),
        (change(count=0), codes.INVALID_RECORD, ""),
        (change(count=-(2**31)), codes.INVALID_RECORD, ""),
        (change(count=2), CORRUPT, "the payload"),
        (change(count=4), CORRUPT, "the payload"),
        (change(count=RECORDS_MAX), CORRUPT, "the payload ends"),
        *[
            (change(codec=codec), codes.UNSUPPORTED_COMPRESSION_TYPE, f"unknown codec {codec}, expected")
            for codec in (2, 7, -1, 2**31 - 1, -(2**31))
        ],
        (change(payload=b""), CORRUPT, "the payload ends at byte 0"),
        (change(payload=b"garbage"), CORRUPT, "unknown kind"),
        (change(payload=b"\x04z"), CORRUPT, "unknown width b'z'"),
        (change(payload=b"\x04b\xfe\0\0"), CORRUPT, "a length of -2"),
        (change(payload=b"\x04b\xfe", count=1), CORRUPT, "a length of -2"),
        (change(payload=b"\x04h\xfe\xff\0\0\0\0"), CORRUPT, "a length of -2"),
        (change(payload=b"\x04" + SAME_MINUS_TWO), CORRUPT, "a length of -2"),
        (change(payload=b"\x04" + SAME_HUGE), CORRUPT, "the payload ends"),
        (change(payload=b"\x04q" + b"\xff\xff\xff\xff\xff\xff\xff\x7f" * 3), CORRUPT, "the payload ends"),
        (change(payload=b"\x08" + SAME_HUGE + EMPTY * 2), CORRUPT, "headers, 1 to 1,000,000"),
        (change(payload=b"\x08" + EMPTY * 3), CORRUPT, "counts 0 headers"),
        (change(payload=b"\x08" + SAME_MINUS_TWO + EMPTY * 2), CORRUPT, "headers, 1 to 1,000,000"),
        (change(payload=b"\x08" + SAME_ONE + b"b\xff\0\0" + EMPTY), CORRUPT, "without a name"),
        (change(payload=b"\x08" + SAME_ONE * 2 + b"a\xffb" + EMPTY), CORRUPT, "not UTF-8"),
        # Two halves of one letter: UTF-8 as a whole, and no name by itself.
        (change(payload=b"\x08" + SAME_ONE * 2 + b"a\xc3\xa4" + EMPTY), CORRUPT, "not UTF-8"),
        (change(payload=b"\x01" + SAME_HUGE, base_timestamp_ms=2**62), CORRUPT, "more than 64 bits"),
        (cut, CORRUPT, "the payload ends"),
        (lengthen, CORRUPT, "1 bytes behind its last column"),
        (change(payload=b"?" * (1 << 20) + b"?"), codes.MESSAGE_TOO_LARGE, "at most 1,048,576"),
        (change(max_timestamp_ms=2**63 - 1), codes.INVALID_TIMESTAMP, "but the latest record has"),
        (change(max_timestamp_ms=START_MS), codes.INVALID_TIMESTAMP, "but the latest record has"),
        (change(base_timestamp_ms=0), codes.INVALID_TIMESTAMP, "but the latest record has"),
    ],
)
def test_a_batch_that_no_reader_can_read_is_refused_whole_with_a_message(
    poison: Callable[[pb.RecordBatch], None], error: codes.ErrorCode.ValueType, message: str
) -> None:
    engine = Engine()
    engine.create(partitions=2)
    poisoned = good()
    poison(poisoned)
    reply = engine.send(good(), poisoned)
    assert (reply.error_code, reply.base_offset) == (error, -1)
    assert message in reply.error_message
    assert engine.rows == []
    assert engine.partition().end == 0
    assert engine.send(good(), index=1).error_code == codes.NONE


def test_the_batch_that_the_table_breaks_is_taken_as_it_is() -> None:
    engine = Engine()
    engine.create()
    assert engine.send(good()).error_code == codes.NONE
    assert engine.partition().end == 3


MUTATION = st.tuples(st.sampled_from("xid"), st.integers(0, 200), st.integers(0, 255))


def mutated(payload: bytes, mutations: list[tuple[str, int, int]]) -> bytes:
    """Bytes that are changed, inserted and deleted."""
    data = bytearray(payload)
    for kind, index, byte in mutations:
        at = index % (len(data) + 1)
        if kind == "i":
            data.insert(at, byte)
        elif at < len(data):
            if kind == "x":
                data[at] = byte
            else:
                del data[at]
    return bytes(data)


@given(
    st.lists(MUTATION, max_size=4),
    st.sampled_from([0, 1, 2, 3, 4, 1_000, RECORDS_MAX + 1]),
    st.sampled_from([START_MS, 0, -1, 2**63 - 1, -(2**63)]),
    st.sampled_from([good().payload, b"\x0f" + EMPTY * 2 + SAME_ONE + b"abc" + SAME_ONE + EMPTY * 2]),
)
def test_what_is_verified_is_exactly_what_is_read(
    mutations: list[tuple[str, int, int]], count: int, base_ms: int, payload: bytes
) -> None:
    payload = mutated(payload, mutations)
    try:
        latest_ms = verify(payload, count, base_ms)
    except MalformedPayload:
        with pytest.raises(MalformedPayload):
            unpack(payload, count, base_ms)
        return
    found = unpack(payload, count, base_ms)
    times = found.timestamps_ms or [base_ms]
    assert latest_ms == max(times)
    assert first_at(payload, count, base_ms, latest_ms) is not None
    # Readers pack parts of a batch anew.
    pack(found, count, times[0])


@given(st.lists(MUTATION, min_size=1, max_size=4), st.integers(-1, 5), st.integers(-1, 6))
def test_what_is_acknowledged_is_read_back(
    mutations: list[tuple[str, int, int]], count: int, latest: int
) -> None:
    engine = Engine()
    engine.create()
    batch = good()
    batch.payload = mutated(batch.payload, mutations)
    batch.count, batch.max_timestamp_ms = count, START_MS + latest
    reply = engine.send(batch)
    assert bool(engine.rows) is (reply.error_code == codes.NONE)
    for row in engine.rows:
        assert unpack(row.payload, row.header.count, row.header.base_timestamp_ms)


@pytest.mark.parametrize(
    "payload", [b"\x0f" + EMPTY * 3 + SAME_ONE + EMPTY * 2, b"\x08" + SAME_ONE + EMPTY * 2]
)
def test_a_few_bytes_that_stand_for_a_million_records_take_no_memory_to_check(payload: bytes) -> None:
    tracemalloc.start()
    try:
        assert verify(payload, RECORDS_MAX, START_MS) == START_MS
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_lengths_without_the_bytes_take_no_memory_to_refuse() -> None:
    tracemalloc.start()
    try:
        for flag in (b"\x02", b"\x04"):
            with pytest.raises(MalformedPayload):
                verify(flag + SAME_HUGE, RECORDS_MAX, START_MS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000
