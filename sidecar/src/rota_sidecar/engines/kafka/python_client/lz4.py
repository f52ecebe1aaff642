"""
Decompression of LZ4 frames. Used by `decompression.py`.

    frame    = magic, descriptor, blocks, 0 (int32), checksum of the content if the descriptor has one
    block    = size (int32; the highest bit: not compressed), data, checksum if the descriptor has one
    data     = sequences of a token, literals, and a back reference, which the last sequence does not have

Checksums within the frame are skipped: the record batch around it has one.
"""

from rota_sidecar.engines.kafka.python_client.copies import MalformedData, append_copy

MAGIC = b"\x04\x22\x4d\x18"
SIZE_BYTES = 4
CHECKSUM_BYTES = 4
CONTENT_SIZE_BYTES = 8
# Bits of the descriptor's first byte.
VERSION, VERSION_MASK = 0x40, 0xC0
HAS_BLOCK_CHECKSUM, HAS_CONTENT_SIZE, HAS_DICTIONARY = 0x10, 0x08, 0x01
UNCOMPRESSED = 1 << 31
# A length of 15 in a token continues in the bytes that follow, which end with one below 255.
LONG, CONTINUED = 15, 255
MATCH_BYTES_MIN = 4


def decompress(data: bytes, bytes_max: int) -> bytes:
    """Return the decompressed bytes. Raises MalformedData, also for more than `bytes_max` of them."""
    if not data.startswith(MAGIC):
        raise MalformedData("its data are not an LZ4 frame")
    found = bytearray()
    try:
        flags, at = _descriptor(data, bytes_max)
        while True:
            size = int.from_bytes(data[at : at + SIZE_BYTES], "little")
            at += SIZE_BYTES
            end = at + (size & ~UNCOMPRESSED)
            # A size that is cut off, too.
            if end > len(data):
                raise IndexError
            if not size:
                return bytes(found)
            if size & UNCOMPRESSED:
                found += data[at:end]
                _check_size(found, bytes_max)
            else:
                _append_block(found, data[at:end], bytes_max)
            at = end + (CHECKSUM_BYTES if flags & HAS_BLOCK_CHECKSUM else 0)
    except IndexError:
        raise MalformedData("its LZ4 frame ends too soon") from None


def _descriptor(data: bytes, bytes_max: int) -> tuple[int, int]:
    """Read the descriptor; return its flags, and the index of the first block."""
    at = len(MAGIC)
    flags = data[at]
    if flags & VERSION_MASK != VERSION or flags & HAS_DICTIONARY:
        raise MalformedData("its LZ4 frame has a version or a dictionary that no client of Kafka writes")
    at += 2
    if flags & HAS_CONTENT_SIZE:
        size = int.from_bytes(data[at : at + CONTENT_SIZE_BYTES], "little")
        at += CONTENT_SIZE_BYTES
        if size > bytes_max:
            raise MalformedData(
                f"its LZ4 frame claims {size:,} bytes decompressed, more than {bytes_max:,} are not read"
            )
    # One byte is the descriptor's own checksum.
    return flags, at + 1


def _append_block(found: bytearray, block: bytes, bytes_max: int) -> None:
    """Append the decompressed bytes of a block, which may refer to bytes of earlier blocks. Raises IndexError at its end."""
    at, end = 0, len(block)
    while True:
        token = block[at]
        at += 1
        length = token >> 4
        if length == LONG:
            more, at = _continued(block, at)
            length += more
        found += block[at : at + length]
        at += length
        if at >= end:
            _end_block(found, at - end, bytes_max)
            return
        distance = block[at] | block[at + 1] << 8
        at += 2
        length = (token & LONG) + MATCH_BYTES_MIN
        if length == LONG + MATCH_BYTES_MIN:
            more, at = _continued(block, at)
            length += more
            # Only a long run can exceed the limit by much.
            if length + len(found) > bytes_max:
                raise _too_large(bytes_max)
        start = len(found) - distance
        if start >= 0 and length <= distance:
            # The common case of `append_copy`, without its call.
            found += found[start : start + length]
        else:
            append_copy(found, distance, length)


def _end_block(found: bytearray, missing: int, bytes_max: int) -> None:
    """Check a block that ends with its literals, of which so many bytes are missing."""
    if missing:
        raise IndexError
    _check_size(found, bytes_max)


def _continued(block: bytes, at: int) -> tuple[int, int]:
    """Read the rest of a length; return it, and the index after it."""
    length = 0
    while (byte := block[at]) == CONTINUED:
        length += CONTINUED
        at += 1
    return length + byte, at + 1


def _check_size(found: bytearray, bytes_max: int) -> None:
    if len(found) > bytes_max:
        raise _too_large(bytes_max)


def _too_large(bytes_max: int) -> MalformedData:
    return MalformedData(f"its LZ4 frame has more than {bytes_max:,} bytes decompressed, which are not read")
