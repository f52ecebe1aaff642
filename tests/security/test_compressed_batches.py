"""A compressed batch is appended when every reader can read it, and costs no more work and memory than one that is not."""

import tracemalloc
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.rpc.validate_log import validate
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.columns import MalformedPayload, unpack
from rota_proto.log.compression import (
    CODECS,
    GZIP,
    ZSTD,
    PayloadTooLarge,
    compress,
    decompress,
    decompressed_size,
)
from rota_proto.log.v1 import log_pb2 as pb
from tests.log.engine import TOPIC, Engine, batch

MIB = 1 << 20
Damage = Callable[[bytes], bytes]


def gzip(columns: bytes, damage: Damage = bytes, claim: int | None = None) -> bytes:
    """Compress columns; state another size than theirs, and damage the result."""
    payload = zlib.compress(columns, wbits=31)
    return damage(payload if claim is None else payload[:-4] + claim.to_bytes(4, "little"))


def gzipped(columns: bytes = b"", damage: Damage = bytes, claim: int | None = None) -> pb.RecordBatch:
    """A batch of 40 records with such a payload."""
    sent = batch(records=40)
    sent.codec, sent.payload = GZIP, gzip(columns or sent.payload, damage, claim)
    return sent


def zstd(columns: bytes, damage: Damage = bytes, *, states_size: bool = True) -> pb.RecordBatch:
    """A batch of 40 records with these columns as zstd, damaged."""
    sent = batch(records=40)
    compressor = zstandard.ZstdCompressor(write_content_size=states_size)
    sent.codec, sent.payload = ZSTD, damage(compressor.compress(columns))
    return sent


def claiming(size: int) -> Damage:
    """State another size in the header of a frame whose size has four bytes."""
    return lambda data: data[:5] + size.to_bytes(4, "little") + data[9:]


def scrambled(data: bytes) -> bytes:
    return data[:10] + b"\xff" * 5 + data[15:]


def cut(data: bytes) -> bytes:
    return data[:-20] + data[-4:]


def twice(data: bytes) -> bytes:
    return data + data


CORRUPT, TOO_LARGE = codes.CORRUPT_MESSAGE, codes.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("sent", "error", "message"),
    [
        (gzipped(damage=lambda data: b""), CORRUPT, "the payload is not gzip: it begins with nothing"),
        (gzipped(damage=lambda data: b"garbage"), CORRUPT, "the payload is not gzip: it begins with 6761"),
        (gzipped(damage=lambda data: data[:2]), CORRUPT, "the payload"),
        (gzipped(claim=2**32 - 1), TOO_LARGE, "has 4,294,967,295 bytes decompressed, at most 1,048,576"),
        (gzipped(claim=MIB), CORRUPT, "damaged gzip data: "),
        (gzipped(claim=0), CORRUPT, "more than the 0 bytes decompressed that it states"),
        (gzipped(damage=scrambled), CORRUPT, "damaged gzip data: "),
        (gzipped(bytes(range(256)) * 4, damage=cut), CORRUPT, "the payload ends within its gzip data"),
        (gzipped(damage=twice), CORRUPT, "bytes behind its gzip data"),
        (gzipped(bytes(MIB + 1)), TOO_LARGE, "has 1,048,577 bytes decompressed"),
        (gzipped(b"garbage"), CORRUPT, "columns of an unknown kind"),
        (gzipped(b"\x04=" + bytes(9)), CORRUPT, "1 bytes behind its last column"),
        (zstd(b"x", lambda data: b""), CORRUPT, "the payload is not zstd: it begins with nothing"),
        (zstd(b"x", lambda data: b"garbage"), CORRUPT, "the payload is not zstd: it begins with 67617262"),
        (zstd(b"x", lambda data: data[:4]), CORRUPT, "damaged zstd data: "),
        (
            zstd(bytes(100_000), claiming(2**32 - 1)),
            TOO_LARGE,
            "has 4,294,967,295 bytes decompressed, at most 1,048,576",
        ),
        (zstd(bytes(100_000), claiming(90_000)), CORRUPT, "damaged zstd data: "),
        (zstd(bytes(100_000), claiming(110_000)), CORRUPT, "damaged zstd data: "),
        (zstd(b"x" * 99, states_size=False), CORRUPT, "damaged zstd data: could not determine content size"),
        (zstd(bytes(range(256)) * 4, lambda data: data[:-2]), CORRUPT, "damaged zstd data: "),
        (zstd(b"x" * 99, twice), CORRUPT, "damaged zstd data: "),
        (zstd(bytes(MIB + 1)), TOO_LARGE, "has 1,048,577 bytes decompressed"),
        (zstd(b"garbage"), CORRUPT, "columns of an unknown kind"),
    ],
)
def test_a_compressed_batch_that_no_reader_can_read_is_refused_with_a_message(
    sent: pb.RecordBatch, error: codes.ErrorCode.ValueType, message: str
) -> None:
    engine = Engine()
    engine.create()
    reply = engine.send(batch(), sent)
    assert codes.ErrorCode.Name(reply.error_code) == codes.ErrorCode.Name(error)
    assert message in reply.error_message
    assert "\n" not in reply.error_message
    assert engine.rows == []


@pytest.mark.parametrize("sent", [gzipped(), zstd(batch(records=40).payload)], ids=["gzip", "zstd"])
def test_a_batch_is_stored_as_it_was_compressed(sent: pb.RecordBatch) -> None:
    engine = Engine()
    engine.create()
    reply = engine.send(sent)
    assert (reply.error_code, reply.error_message, reply.base_offset) == (codes.NONE, "", 0)
    (row,) = engine.rows
    assert (row.codec, row.payload, row.header.count) == (sent.codec, sent.payload, 40)
    assert engine.partition().end == 40


def test_the_limit_of_a_batch_is_that_of_its_decompressed_bytes() -> None:
    largest = len(batch(records=40).payload)
    for limit, error in ((largest, codes.NONE), (largest - 1, TOO_LARGE)):
        engine = Engine(LogConfig(batch_bytes_max=limit))
        engine.create()
        assert engine.send(gzipped()).error_code == error


def produce(*batches: pb.RecordBatch) -> pb.ProduceRequest:
    return pb.ProduceRequest(partitions=[pb.ProduceRequest.Partition(topic=TOPIC, index=0, batches=batches)])


def test_batches_of_a_request_have_no_more_bytes_than_a_request_without_compression() -> None:
    columns = bytes(MIB)
    assert validate(produce(*[gzipped(columns)] * 4)) == ""
    refused = validate(produce(*[gzipped(columns)] * 5))
    assert refused == (
        "the batches have 5,242,880 bytes decompressed, at most 4,194,304 are allowed in a request; send smaller batches, or "
        "fewer of them"
    )
    # Refused for its partition alone, and never decompressed.
    assert validate(produce(gzipped(claim=2**32 - 1))) == ""


def test_a_bomb_takes_no_memory_to_refuse() -> None:
    large, also = gzip(bytes(64 * MIB)), zstd(bytes(64 * MIB)).payload
    lying, also_lying = large[:-4] + (1000).to_bytes(4, "little"), claiming(1000)(also)
    for codec, payload, kind, limit in (
        (GZIP, large, PayloadTooLarge, len(large)),
        (GZIP, lying, MalformedPayload, 3 * len(lying)),
        (ZSTD, also, PayloadTooLarge, len(large)),
        (ZSTD, also_lying, MalformedPayload, 3 * len(lying)),
    ):
        tracemalloc.start()
        try:
            with pytest.raises(kind):
                decompress(codec, payload, MIB)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < limit


@given(st.sampled_from(CODECS), st.binary(max_size=3000), st.integers(0, 200), st.integers(0, 4000))
def test_decompressed_columns_are_those_that_were_compressed_within_the_limit(
    asked: int, columns: bytes, repeated: int, limit: int
) -> None:
    columns += bytes(repeated)
    codec, payload = compress(asked, columns)
    assert len(payload) <= len(columns)
    assert decompressed_size(codec, payload) == len(columns)
    if codec == asked and len(columns) > limit:
        with pytest.raises(PayloadTooLarge):
            decompress(codec, payload, limit)
    else:
        assert decompress(codec, payload, limit) == columns


@given(
    st.sampled_from([gzip, lambda columns, damage, _: zstd(columns, damage).payload]),
    st.binary(min_size=1, max_size=300),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 2**32 - 1) | st.integers(0, 400) | st.none(),
)
def test_what_is_damaged_is_refused_or_has_the_size_that_it_states(
    compressed: Callable[[bytes, Damage, int | None], bytes],
    columns: bytes,
    changes: list[tuple[int, int]],
    claim: int | None,
) -> None:
    def damage(data: bytes) -> bytes:
        damaged = bytearray(data)
        for at, byte in changes:
            damaged[at % len(damaged)] = byte
        return bytes(damaged)

    payload, codec = compressed(columns, damage, claim), GZIP if compressed is gzip else ZSTD
    try:
        found = decompress(codec, payload, MIB)
    except MalformedPayload:
        return
    assert len(found) == decompressed_size(codec, payload) <= MIB


@given(st.binary(max_size=200), st.lists(st.integers(0, 100), max_size=3))
def test_what_is_acknowledged_is_read_back(columns: bytes, cuts: list[int]) -> None:
    sent = gzipped(columns)
    if cuts:
        data = bytearray(sent.payload)
        for at in cuts:
            del data[at % len(data)]
        sent.payload = bytes(data)
    engine = Engine()
    engine.create()
    reply = engine.send(sent)
    assert bool(engine.rows) is (reply.error_code == codes.NONE)
    for row in engine.rows:
        assert unpack(decompress(row.codec, row.payload), row.header.count, row.header.base_timestamp_ms)
