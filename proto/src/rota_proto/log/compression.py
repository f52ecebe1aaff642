"""
Compress and decompress the payload of a `RecordBatch`: `codec` 0 is the columns themselves, any other one a compression of them.

Producers call `compress` after `columns.pack`; the log calls `decompress` before it appends a batch, readers before
`columns.unpack`. The numbers of codecs are Kafka's. A compressed payload states its decompressed size, gzip at its end and zstd
in its header, so that the size is known before anything of that size is allocated.
"""

import zlib
from collections.abc import Collection

import zstandard

from rota_proto.log.columns import CODEC, MalformedPayload

GZIP, ZSTD = 1, 4
NAMES = {CODEC: "none", GZIP: "gzip", ZSTD: "zstd"}
CODECS = tuple(codec for codec in NAMES if codec != CODEC)
"""Compressions that this version reads and writes."""
# The decompressed size of a batch that a reader accepts: a message of gRPC has no larger one without compression.
BYTES_MAX = 4 << 20
# For zlib: with the header and the trailer of gzip.
GZIP_WINDOW = 31
# First bytes of a payload.
MAGIC = {GZIP: b"\x1f\x8b", ZSTD: b"\x28\xb5\x2f\xfd"}
GZIP_SIZE_BYTES = 4


class UnknownCodec(MalformedPayload):
    """The codec is that of a later version."""


class PayloadTooLarge(MalformedPayload):
    """The decompressed payload would exceed the limit; nothing was decompressed."""


def codec_of(name: str) -> int | None:
    """Return the codec of a compression by its name in Kafka's clients; None if there is none here."""
    return next((codec for codec, each in NAMES.items() if each == name), None)


def compress(codec: int, payload: bytes) -> tuple[int, bytes]:
    """
    Return codec and compressed payload; columns that compression would not shorten are returned as they are, with codec 0.

    >>> codec, payload = compress(GZIP, bytes(1000))
    >>> codec, decompressed_size(codec, payload), decompress(codec, payload) == bytes(1000)
    (1, 1000, True)
    """
    if codec == CODEC:
        return CODEC, payload
    _check_codec(codec)
    if codec == ZSTD:
        compressed = zstandard.ZstdCompressor().compress(payload)
    else:
        compressed = zlib.compress(payload, wbits=GZIP_WINDOW)
    return (codec, compressed) if len(compressed) < len(payload) else (CODEC, payload)


def decompressed_size(codec: int, payload: bytes) -> int:
    """Return the decompressed size that a payload states, in bytes; `decompress` raises MalformedPayload if it has another one."""
    match codec:
        case 1:
            return int.from_bytes(payload[-GZIP_SIZE_BYTES:], "little")
        case 4:
            return _zstd_size(payload)
        case _:
            return len(payload)


def _zstd_size(payload: bytes) -> int:
    """Return the size in the header of a frame; 0 if it has none."""
    try:
        return max(zstandard.frame_content_size(payload), 0)
    except zstandard.ZstdError:
        return 0


def decompress(codec: int, payload: bytes, bytes_max: int = BYTES_MAX) -> bytes:
    """
    Return the columns of a payload, in memory of at most `bytes_max` and one byte.

    Raises UnknownCodec, PayloadTooLarge for columns of more than `bytes_max`, MalformedPayload.
    """
    if codec == CODEC:
        return payload
    _check_codec(codec)
    if not payload.startswith(MAGIC[codec]):
        begin = payload[: len(MAGIC[codec])].hex() or "nothing"
        raise MalformedPayload(f"the payload is not {NAMES[codec]}: it begins with {begin}")
    size = decompressed_size(codec, payload)
    if size > bytes_max:
        raise PayloadTooLarge(f"the batch has {size:,} bytes decompressed, at most {bytes_max:,} are allowed")
    return _from_zstd(payload) if codec == ZSTD else _from_gzip(payload, size)


def _from_gzip(payload: bytes, size: int) -> bytes:
    decompressor = zlib.decompressobj(wbits=GZIP_WINDOW)
    try:
        columns = decompressor.decompress(payload, size + 1)
    except zlib.error as error:
        raise MalformedPayload(f"the payload has damaged gzip data: {error}") from error
    if len(columns) > size:
        raise MalformedPayload(f"the payload has more than the {size:,} bytes decompressed that it states")
    if not decompressor.eof:
        raise MalformedPayload(f"the payload ends within its gzip data, after {len(payload):,} bytes")
    if decompressor.unused_data:
        raise MalformedPayload(f"the payload has {len(decompressor.unused_data)} bytes behind its gzip data")
    return columns


def _from_zstd(payload: bytes) -> bytes:
    """Decompress one frame into as many bytes as it states; without a stated size it is refused."""
    try:
        return zstandard.ZstdDecompressor().decompress(payload, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise MalformedPayload(f"the payload has damaged zstd data: {error}") from error


def is_accepted(codec: int, accepted: Collection[int]) -> bool:
    """Return whether a reader that accepts these compressions decodes a batch; codec 0 is decoded by all."""
    return codec == CODEC or codec in accepted


def _check_codec(codec: int) -> None:
    if codec not in NAMES:
        known = " or ".join(f"{number} ({name})" for number, name in NAMES.items())
        raise UnknownCodec(f"unknown codec {codec}, expected {known}")
