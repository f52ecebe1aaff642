"""Records come out of a payload as they went in, and bytes that are no payload are refused in a sentence."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_proto.log.columns import (
    RECORDS_MAX,
    Columns,
    Header,
    MalformedPayload,
    first_at,
    pack,
    unpack,
)

BASE_MS = 1_700_000_000_000

Blobs = Sequence[bytes | None]
BLOB = st.none() | st.binary(max_size=300)
# Near each other, as they are, and as far away as an application may put them.
TIME = st.integers(BASE_MS - 300, BASE_MS + 300) | st.integers(0, 2**62)
HEADER: st.SearchStrategy[Header] = st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5))


@st.composite
def columns(draw: st.DrawFn) -> Columns:
    """The columns of one batch, each of which may be left out."""
    count = draw(st.integers(1, 20))

    same = draw(st.binary(max_size=10))
    values = draw(st.just([same] * count) | st.lists(BLOB, min_size=count, max_size=count) | st.none())
    keys = draw(st.none() | st.lists(BLOB, min_size=count, max_size=count))
    times = draw(st.none() | st.lists(TIME, min_size=count, max_size=count))
    headers = draw(st.none() | st.lists(st.lists(HEADER, max_size=3), min_size=count, max_size=count))
    return Columns(values, keys, times, headers)


def filled(found: Columns, count: int) -> list[tuple[bytes | None, bytes | None, int, tuple[Header, ...]]]:
    """Record by record, with what a column that is left out stands for."""
    nothing: Blobs = [None] * count
    return list(
        zip(
            found.values or nothing,
            found.keys or nothing,
            found.timestamps_ms or [BASE_MS] * count,
            [tuple(headers) for headers in found.headers or [()] * count],
            strict=True,
        )
    )


def count_of(batch: Columns) -> int:
    return next((len(column) for column in batch if column is not None), 1)


@given(columns())
def test_records_come_out_as_they_went_in(batch: Columns) -> None:
    count = count_of(batch)
    assert filled(unpack(pack(batch, count, BASE_MS), count, BASE_MS), count) == filled(batch, count)


def test_null_is_not_empty() -> None:
    values = [None, b"", b"x", None]
    assert unpack(pack(Columns(values, [b"", None, None, b""]), 4, 0), 4, 0) == Columns(
        values, [b"", None, None, b""]
    )


def test_the_most_records_that_a_batch_may_have_need_no_more_bytes_than_one() -> None:
    payload = pack(Columns([b""] * RECORDS_MAX), RECORDS_MAX, 0)
    assert len(payload) == 1 + 9
    assert unpack(payload, RECORDS_MAX, 0).values == [b""] * RECORDS_MAX


def test_what_is_the_same_for_all_takes_no_room() -> None:
    equal = Columns([b"x" * 100] * 1000, [None] * 1000, [BASE_MS] * 1000, [()] * 1000)
    assert len(pack(equal, 1000, BASE_MS)) == 100_000 + 1 + 9


@pytest.mark.parametrize(("length", "width"), [(127, 1), (128, 2), (32_767, 2), (32_768, 4)])
def test_lengths_take_as_many_bytes_as_the_longest_needs(length: int, width: int) -> None:
    assert len(pack(Columns([b"", b"x" * length]), 2, 0)) == 1 + 1 + 2 * width + length


@given(st.binary(max_size=60), st.integers(-1, 40) | st.sampled_from([1000, 2**31 - 1]))
def test_garbage_is_refused_or_read_within_its_bounds(payload: bytes, count: int) -> None:
    try:
        found = unpack(payload, count, BASE_MS)
    except MalformedPayload:
        return
    assert all(column is None or len(column) == count for column in found)
    assert sum(len(blob or b"") for column in found[:2] for blob in column or ()) <= len(payload)


@given(columns(), st.data())
def test_a_damaged_payload_is_refused_or_read_within_its_bounds(batch: Columns, data: st.DataObject) -> None:
    count = count_of(batch)
    payload = bytearray(pack(batch, count, BASE_MS))
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] ^= data.draw(st.integers(1, 255))
    try:
        found = unpack(bytes(payload), count, BASE_MS)
    except MalformedPayload:
        return
    assert all(column is None or len(column) == count for column in found)


@given(columns(), st.data())
def test_a_payload_that_was_cut_off_is_refused(batch: Columns, data: st.DataObject) -> None:
    count = count_of(batch)
    payload = pack(batch, count, BASE_MS)
    shorter = payload[: data.draw(st.integers(0, len(payload) - 1))]
    with pytest.raises(MalformedPayload):
        unpack(shorter, count, BASE_MS)


@given(columns())
def test_a_payload_with_more_behind_it_is_refused(batch: Columns) -> None:
    count = count_of(batch)
    with pytest.raises(MalformedPayload, match="behind its last column"):
        unpack(pack(batch, count, BASE_MS) + b"x", count, BASE_MS)


def test_unknown_columns_are_reported_to_a_reader() -> None:
    with pytest.raises(MalformedPayload, match="update the reader"):
        unpack(b"\x80", 1, 0)


@given(columns(), TIME)
def test_the_first_record_at_a_time_is_found(batch: Columns, time: int) -> None:
    count = count_of(batch)
    records = filled(batch, count)
    wanted = next(((at, record[2]) for at, record in enumerate(records) if record[2] >= time), None)
    assert first_at(pack(batch, count, BASE_MS), count, BASE_MS, time) == wanted


@pytest.mark.parametrize(
    ("batch", "count", "says"),
    [
        (Columns([b"x"]), 2, "the column values has 1 records and the batch 2"),
        (Columns(), 0, "1 to 1,000,000 records"),
        (Columns(), RECORDS_MAX + 1, "send several"),
        (Columns(timestamps_ms=[0, 2**64]), 2, "64 bits"),
    ],
)
def test_what_fits_no_batch_is_refused(batch: Columns, count: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        pack(batch, count, 0)
