"""Each codec of Kafka decompresses what other implementations write, in bounded memory; damaged data are one error."""

import json
import random
import tracemalloc
import zlib
from contextlib import suppress

import pyarrow
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from rota_sidecar.engines.kafka.python_client.copies import MalformedData
from rota_sidecar.engines.kafka.python_client.decompression import GZIP, LZ4, NONE, SNAPPY, ZSTD, decompress

CODECS = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
MIB = 1 << 20
DRAWN = random.Random(7)
TEXT = "".join(
    json.dumps({"order": DRAWN.randrange(10**6), "state": DRAWN.choice(["new", "paid", "sent"])})
    for _ in range(3_000)
).encode()
SAMPLES = [b"", b"a", b"ab" * 9_000, bytes(200_000), DRAWN.randbytes(70_000), TEXT]

each_codec = pytest.mark.parametrize("codec", CODECS, ids=CODECS.values())


def compressed(codec: int, data: bytes) -> bytes:
    found: bytes = pyarrow.Codec(CODECS[codec]).compress(data, asbytes=True)
    return found


def framed(*blocks: bytes) -> bytes:
    """Return snappy blocks in the frames of snappy-java."""
    header = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2
    return header + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


@each_codec
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_what_is_compressed_is_decompressed(codec: int, data: bytes) -> None:
    assert decompress(codec, compressed(codec, data)) == data
    assert decompress(NONE, data) == data


@each_codec
@settings(max_examples=50)
@given(data=st.lists(st.sampled_from([b"a", b"bc", b"\0" * 40, b"quite a long run of bytes"])).map(b"".join))
def test_repeated_runs_of_any_length_are_decompressed(codec: int, data: bytes) -> None:
    assert decompress(codec, compressed(codec, data)) == data


def test_the_frames_of_javas_clients_are_decompressed() -> None:
    half = len(TEXT) // 2
    blocks = [compressed(SNAPPY, part) for part in (TEXT[:half], TEXT[half:], b"")]
    assert decompress(SNAPPY, framed(*blocks)) == TEXT
    assert decompress(SNAPPY, framed()) == b""
    with pytest.raises(MalformedData, match="snappy data end within a block"):
        decompress(SNAPPY, framed(*blocks[:2])[:-1])
    with pytest.raises(
        MalformedData, match=r"claim [\d,]+ bytes decompressed, more than [\d,]+ are not read"
    ):
        decompress(SNAPPY, framed(*blocks), len(TEXT) - 1)


def test_distances_of_four_bytes_are_read() -> None:
    # A literal, and eight bytes from two before.
    assert decompress(SNAPPY, b"\x0a" + b"\x04ab" + b"\x1f\x02\0\0\0") == b"ab" * 5


def test_frames_of_zstd_without_their_size_are_decompressed() -> None:
    compressor = zstandard.ZstdCompressor().compressobj()
    assert decompress(ZSTD, compressor.compress(TEXT) + compressor.flush()) == TEXT


def test_frames_of_lz4_with_checksums_and_stored_blocks_are_decompressed() -> None:
    block = b"abcdefgh"
    stored = (len(block) | 1 << 31).to_bytes(4, "little") + block
    # Version 1 with checksums of blocks and of the content, and the content's size; the checksums are not read.
    header = b"\x04\x22\x4d\x18" + b"\x5c\x40" + (16).to_bytes(8, "little") + b"?"
    assert decompress(LZ4, header + (stored + b"????") * 2 + bytes(4) + b"????") == block * 2
    with pytest.raises(MalformedData, match="claims 16 bytes decompressed, more than 15 are not read"):
        decompress(LZ4, header + (stored + b"????") * 2 + bytes(4) + b"????", 15)


@each_codec
def test_data_that_are_larger_than_the_limit_are_refused_in_bounded_memory(codec: int) -> None:
    data = compressed(codec, bytes(100 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(MalformedData, match=r"which are not read$|are not read$"):
            decompress(codec, data, MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB


def test_a_claim_of_4_gib_is_refused_before_anything_is_decompressed() -> None:
    with pytest.raises(MalformedData, match="claim 4,294,967,295 bytes decompressed"):
        decompress(SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\0a")
    header = b"\x04\x22\x4d\x18" + b"\x48\x40" + (4 << 30).to_bytes(8, "little") + b"?"
    with pytest.raises(MalformedData, match="claims 4,294,967,296 bytes decompressed"):
        decompress(LZ4, header)


def test_a_run_of_lz4_that_is_much_longer_than_the_limit_is_refused_before_it_is_copied() -> None:
    # One byte, and a copy of it that goes on for 10 MB.
    block = b"\x1fa\x01\x00" + b"\xff" * 40_000 + b"\x00" + b"\x00"
    data = b"\x04\x22\x4d\x18\x40\x40?" + len(block).to_bytes(4, "little") + block + bytes(4)
    assert len(decompress(LZ4, data)) == 1 + 40_000 * 255 + 19
    with pytest.raises(MalformedData, match="more than 1,000 bytes decompressed"):
        decompress(LZ4, data, 1_000)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(MalformedData, match=f"^its codec {codec} is unknown; update the sidecar$"):
        decompress(codec, b"")


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_data_that_end_too_soon_are_refused(codec: int) -> None:
    data = compressed(codec, TEXT[:5_000])
    # The end mark of LZ4 has four zero bytes, and a frame without some of them has all of its content.
    for end in range(len(data) - (8 if codec == LZ4 else 0)):
        with pytest.raises(MalformedData):
            decompress(codec, data[:end])


@each_codec
@settings(max_examples=200)
@given(garbage=st.binary(max_size=60), where=st.integers(0, 400), with_start=st.booleans())
def test_damaged_data_are_an_error_or_bytes_within_the_limit(
    codec: int, garbage: bytes, where: int, with_start: bool
) -> None:
    good = compressed(codec, TEXT[:2_000])
    data = good[:where] + garbage + good[where + len(garbage) :] if with_start else garbage
    with suppress(MalformedData):
        assert len(decompress(codec, data, 10_000)) <= 10_000


def test_gzip_of_the_standard_library_is_decompressed() -> None:
    assert decompress(GZIP, zlib.compress(TEXT, wbits=31)) == TEXT
