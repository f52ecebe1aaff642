"""Record batches of a Fetch response become batches of columns: all records that may be read, and the offset after them."""

import random
from collections.abc import Sequence

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota_sidecar.engines.kafka.packing import BATCH_BYTES_MAX
from rota_sidecar.engines.kafka.python_client import record_set
from rota_sidecar.engines.kafka.python_client.decompression import GZIP, LZ4, SNAPPY, ZSTD
from rota_sidecar.engines.kafka.python_client.encoding import varint
from rota_sidecar.engines.kafka.python_client.record_set import HEADER, Aborted, Decoded, decode
from tests.sidecar.engines.kafka.python_client.record_batches import (
    ABORT,
    APPEND_TIME_BIT,
    COMMIT,
    Producer,
    batch,
    rows,
    sealed,
    valid_for_kafka_python,
    with_records,
)
from tests.sidecar.engines.readers import Row, rows_of

CODECS = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
P, Q = Producer(7), Producer(8)

blobs = st.none() | st.binary(max_size=5) | st.binary(min_size=60, max_size=70) | st.just(bytes(9_000))
headers = st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3).map(tuple)
records = st.lists(st.tuples(blobs, blobs, st.integers(0, 1 << 45), headers), min_size=1, max_size=12)


def rows_in(found: Decoded) -> list[Row]:
    return [row for each in found.batches for row in rows_of(each)]


def offsets_in(found: Decoded) -> list[int]:
    return [row.offset for row in rows_in(found)]


@given(records=records, gaps=st.lists(st.integers(1, 200), min_size=12, max_size=12), size=st.integers(1, 12))
def test_what_kafka_python_writes_is_read(
    records: list[tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]],
    gaps: list[int],
    size: int,
) -> None:
    offset, written = 5, list[Row]()
    for gap, (value, key, timestamp_ms, of_record) in zip(gaps, records, strict=False):
        offset += gap
        written.append(Row(offset, value, key, timestamp_ms, of_record))
    batches = [batch(written[start : start + size]) for start in range(0, len(written), size)]
    assert all(map(valid_for_kafka_python, batches))
    found = decode(b"".join(batches), 5, [], with_keys=True)
    assert rows_in(found) == written
    assert (found.problem, found.next_offset) == ("", offset + 1)


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_records_are_read(codec: int) -> None:
    written = rows(3, *(b"value %d" % number for number in range(500)))
    plain = batch(written, codec=codec)
    data = with_records(plain, pyarrow.Codec(CODECS[codec]).compress(plain[HEADER.size :], asbytes=True))
    found = decode(data + batch(rows(503, b"more")), 3, [], with_keys=False)
    assert rows_in(found) == [*written, *rows(503, b"more")]


def test_a_fetch_within_a_batch_returns_the_records_from_its_offset_on() -> None:
    data = batch(rows(10, b"a", b"b", b"c")) + batch(rows(13, b"d"))
    for offset in range(8, 15):
        found = decode(data, offset, [], with_keys=True)
        assert offsets_in(found) == list(range(max(offset, 10), 14))
        assert found.next_offset == max(offset, 14)


def test_consecutive_batches_are_packed_together_up_to_a_size() -> None:
    small = b"".join(batch(rows(offset, b"v")) for offset in range(1_000))
    (one,) = decode(small, 0, [], with_keys=False).batches
    assert (one.first, one.count, one.keys) == (0, 1_000, None)
    size = BATCH_BYTES_MAX // 3
    large = b"".join(batch(rows(offset, bytes(size))) for offset in range(7))
    found = decode(large, 0, [], with_keys=False)
    assert [each.count for each in found.batches] == [2, 2, 2, 1]


def test_a_batch_that_is_cut_off_is_read_with_the_next_response() -> None:
    first, second = batch(rows(0, b"a")), batch(rows(1, b"b"))
    for end in range(len(second)):
        found = decode(first + second[:end], 0, [], with_keys=False)
        assert (offsets_in(found), found.next_offset, found.problem) == ([0], 1, "")


def test_what_was_compacted_away_leaves_gaps_within_and_between_batches() -> None:
    left = [each for each in rows(0, *(b"%d" % number for number in range(100))) if each.offset % 7]
    data = batch(left[:40], end=60) + batch(rows(64, b"a"), end=70) + batch(rows(70, b"b"))
    found = decode(data, 0, [], with_keys=True)
    assert rows_in(found) == [*left[:40], *rows(64, b"a"), *rows(70, b"b")]
    assert all(each.count == len(rows_of(each)) for each in found.batches)


def emptied(data: bytes) -> bytes:
    """Return a batch whose records compaction has removed."""
    empty = bytearray(data[: HEADER.size])
    empty[8:12] = (HEADER.size - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    return sealed(empty)


def test_a_batch_without_records_moves_the_offset_on() -> None:
    data = emptied(batch(rows(5, b"a"), end=9)) + batch(rows(9, b"b"))
    found = decode(data, 5, [], with_keys=False)
    assert (offsets_in(found), found.next_offset) == ([9], 10)


def test_a_topic_with_append_times_has_them() -> None:
    data = batch(rows(0, b"a", b"b", b"c"), bits=APPEND_TIME_BIT)
    # kafka-python has written the latest timestamp as the maximum.
    assert [row.timestamp_ms for row in rows_in(decode(data, 0, [], with_keys=False))] == [1_002] * 3


def test_the_leader_epoch_is_that_of_the_last_batch() -> None:
    data = batch(rows(0, b"a"), leader_epoch=3) + batch(rows(1, b"b"), leader_epoch=4)
    assert decode(data, 0, [], with_keys=False).leader_epoch == 4


# Transactions


def test_aborted_transactions_are_skipped_and_committed_ones_returned() -> None:
    data = b"".join(
        [
            P.batch(0, b"aborted"),
            Q.batch(1, b"committed"),
            batch(rows(2, b"plain")),
            P.batch(3, b"aborted"),
            P.marker(4, ABORT),
            P.batch(5, b"committed"),
            Q.marker(6, COMMIT),
            P.marker(7, COMMIT),
            Q.batch(8, b"aborted"),
            Q.marker(9, ABORT),
        ]
    )
    aborted = [Aborted(8, 8), Aborted(7, 0)]
    found = decode(data, 0, aborted, with_keys=False)
    assert [(row.offset, row.value) for row in rows_in(found)] == [
        (1, b"committed"),
        (2, b"plain"),
        (5, b"committed"),
    ]
    assert found.next_offset == 10
    # Read uncommitted: all but the markers.
    assert offsets_in(decode(data, 0, None, with_keys=False)) == [0, 1, 2, 3, 5, 8]


def test_a_fetch_within_an_aborted_transaction_skips_the_rest_of_it() -> None:
    data = P.batch(3, b"aborted") + P.marker(4, ABORT) + P.batch(5, b"kept")
    assert offsets_in(decode(data, 3, [Aborted(7, 0)], with_keys=False)) == [5]


def test_a_response_that_ends_within_a_transaction_moves_the_offset_on() -> None:
    found = decode(P.batch(0, b"a", b"b"), 0, [Aborted(7, 0)], with_keys=False)
    assert (found.batches, found.next_offset, found.problem) == ([], 2, "")


def test_a_marker_that_compaction_has_emptied_ends_nothing() -> None:
    data = P.batch(0, b"aborted") + emptied(P.marker(1, ABORT)) + P.batch(2, b"aborted") + P.marker(3, ABORT)
    found = decode(data + P.batch(4, b"kept"), 0, [Aborted(7, 0)], with_keys=False)
    assert (offsets_in(found), found.problem) == ([4], "")


# What cannot be read


def damaged(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_any_changed_byte_that_the_checksum_covers_is_noticed() -> None:
    first, second = batch(rows(0, b"before")), batch(rows(1, b"damaged", b"too"))
    for at in [17, 18, 19, 20, *range(21, len(second))]:
        found = decode(first + damaged(second, at) + batch(rows(3, b"behind")), 0, [], with_keys=False)
        assert (offsets_in(found), found.next_offset) == ([0], 1)
        assert found.problem == "its checksum does not match its bytes"


def test_a_batch_whose_end_is_damaged_is_not_passed_over() -> None:
    data = bytearray(batch(rows(5, b"a", b"b")))
    data[23:27] = (-9).to_bytes(4, "big", signed=True)
    for attempt, problem in ((bytes(data), "its checksum does not"), (sealed(data), "its header is damaged")):
        found = decode(attempt, 5, [], with_keys=False)
        assert found.problem.startswith(problem)
        assert found.next_offset == 5


def of(records: bytes, count: int = 1) -> bytes:
    """Return a batch whose header counts so many records in these bytes."""
    data = bytearray(batch(rows(0, b"v"), end=max(count, 1)))
    data[57:61] = count.to_bytes(4, "big", signed=True)
    return with_records(bytes(data), records)


def with_base_time(records: bytes, base_ms: int) -> bytes:
    """Return a batch with another base timestamp."""
    data = bytearray(of(records))
    data[27:35] = base_ms.to_bytes(8, "big", signed=True)
    return sealed(data)


GOOD = batch(rows(0, b"v"))[HEADER.size :]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (of(GOOD, 2), "it ends within a record"),
        (of(GOOD[:-1]), "it ends within a record"),
        (of(GOOD + b"\0"), "it has bytes behind its last record"),
        (of(GOOD, 1_000_000_000), "it ends within a record"),
        (of(GOOD, -1), "its header is damaged"),
        (of(bytes([GOOD[0] + 2]) + GOOD[1:]), "the lengths in one of its records contradict each other"),
        (of(GOOD[:-1] + b"\x02\x02\xff\x01"), "the name of a header is not UTF-8"),
        (of(GOOD[:-1] + varint(1_000_001)), "one of its records has more than 1,000,000 headers"),
        (with_base_time(GOOD, 1 << 62), "one of its timestamps has more than 62 bits"),
        (with_base_time(GOOD, -(1 << 63)), "one of its timestamps has more than 62 bits"),
        (with_records(batch(rows(0, b"v"), codec=GZIP), b"no gzip"), "its gzip data are damaged"),
        (with_records(batch(rows(0, b"v"), codec=6), GOOD), "its codec 6 is unknown; update the sidecar"),
    ],
)
def test_a_batch_that_cannot_be_decoded_is_a_problem_that_says_why(data: bytes, problem: str) -> None:
    found = decode(data + batch(rows(1, b"behind")), 0, [], with_keys=False)
    assert found.problem.startswith(problem)
    assert (found.batches, found.next_offset) == ([], 0)


def test_formats_before_kafka_0_11_are_refused_by_name() -> None:
    old = bytearray(batch(rows(0, b"v")))
    old[16] = 1
    found = decode(bytes(old), 0, [], with_keys=False)
    assert found.problem == "it has message format 1, and formats before Kafka 0.11 are not read"


@settings(max_examples=300)
@given(data=st.binary(max_size=200), at=st.integers(0, 120))
def test_garbage_is_a_problem_or_records_and_never_a_hang(data: bytes, at: int) -> None:
    good = batch(rows(0, b"a", b"b"))
    changed = bytearray(good[:at] + data)
    for attempt in (bytes(changed), sealed(changed) if len(changed) > HEADER.size else b""):
        found = decode(attempt, 0, [], with_keys=True)
        assert found.next_offset >= 0


# Limits


def compressed_zeros(offset: int, size: int) -> bytes:
    plain = batch(rows(offset, bytes(size)), codec=ZSTD)
    return with_records(plain, pyarrow.Codec("zstd").compress(plain[HEADER.size :], asbytes=True))


def test_what_exceeds_the_limit_in_memory_is_left_for_the_next_fetch() -> None:
    data = b"".join(compressed_zeros(offset, 100_000) for offset in range(20))
    assert len(data) < 10_000
    found = decode(data, 0, [], with_keys=False, bytes_max=250_000)
    assert (offsets_in(found), found.next_offset, found.problem) == ([0, 1, 2], 3, "")


def test_a_batch_of_more_bytes_than_are_read_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_set, "DECOMPRESSED_BYTES_MAX", 1_000_000)
    found = decode(compressed_zeros(0, 2_000_000), 0, [], with_keys=False)
    assert found.problem == "its zstd data have more than 1,000,000 bytes decompressed, which are not read"


def test_records_of_a_large_batch_are_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_set, "RECORDS_AT_ONCE", 7)
    written: Sequence[Row] = rows(2, *(b"%d" % number for number in range(50)))
    assert rows_in(decode(batch(written), 2, [], with_keys=True)) == written


def test_offsets_and_times_of_any_width_are_read() -> None:
    drawn = random.Random(3)
    written = [
        Row(offset, bytes(offset % 300), b"k", 1_600_000_000_000 + drawn.randrange(-(1 << 40), 1 << 40), ())
        for offset in [0, 63, 64, 8_191, 8_192, 1 << 20, (1 << 31) - 1]
    ]
    found = decode(batch(written), 0, [], with_keys=True)
    assert rows_in(found) == written
    assert found.next_offset == 1 << 31
