"""
Decompression of record batches with Kafka's codecs, into a bounded number of bytes. Called by `record_set.py`.

gzip is in the standard library, and zstd is a library that Rota has; snappy and LZ4 are decoded by the modules beside this one.
"""

import zlib

import zstandard

from rota_sidecar.engines.kafka.python_client import lz4, snappy
from rota_sidecar.engines.kafka.python_client.copies import MalformedData

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
# A batch has at most some MB compressed, and could have a thousand times as many decompressed.
BYTES_MAX = 64 << 20
# For zlib: with the header and the trailer of gzip.
GZIP_WINDOW = 31
# Memory that a frame of zstd may claim before it has any content; Kafka's clients claim 8 MiB at their highest usual levels.
ZSTD_WINDOW_BYTES_MAX = 64 << 20
CHUNK_BYTES = 1 << 20


def decompress(codec: int, data: bytes, bytes_max: int = BYTES_MAX) -> bytes:
    """Return the decompressed records of a batch. Raises MalformedData, also for a codec that no version of Kafka has yet."""
    match codec:
        case 0:
            return data
        case 1:
            return _gzip(data, bytes_max)
        case 2:
            return snappy.decompress(data, bytes_max)
        case 3:
            return lz4.decompress(data, bytes_max)
        case 4:
            return _zstd(data, bytes_max)
        case _:
            raise MalformedData(f"its codec {codec} is unknown; update the sidecar")


def _gzip(data: bytes, bytes_max: int) -> bytes:
    decompressor = zlib.decompressobj(wbits=GZIP_WINDOW)
    try:
        found = decompressor.decompress(data, bytes_max + 1)
    except zlib.error as error:
        raise MalformedData(f"its gzip data are damaged ({error})") from None
    if len(found) > bytes_max:
        raise _too_large("gzip", bytes_max)
    if not decompressor.eof:
        raise MalformedData("its gzip data end too soon")
    return found


def _zstd(data: bytes, bytes_max: int) -> bytes:
    """Decompress one frame in chunks: Java's clients state no size in it."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
    chunks: list[bytes] = []
    size = 0
    try:
        with decompressor.stream_reader(data) as reader:
            while chunk := reader.read(CHUNK_BYTES):
                chunks.append(chunk)
                size += len(chunk)
                if size > bytes_max:
                    raise _too_large("zstd", bytes_max)
    except zstandard.ZstdError as error:
        raise MalformedData(f"its zstd data are damaged ({error})") from None
    return b"".join(chunks)


def _too_large(name: str, bytes_max: int) -> MalformedData:
    return MalformedData(
        f"its {name} data have more than {bytes_max:,} bytes decompressed, which are not read"
    )
