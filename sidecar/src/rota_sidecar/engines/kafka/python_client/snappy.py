"""
Decompression of snappy: raw blocks, and blocks in the frames of snappy-java, which Java's clients write. Used by `decompression.py`.

    block  = decompressed size (varint), elements
    frames = magic, version (int32), oldest reader's version (int32), then for each block its size (int32) and the block
"""

from rota_sidecar.engines.kafka.python_client.copies import MalformedData, append_copy

JAVA_MAGIC = b"\x82SNAPPY\x00"
JAVA_HEADER_BYTES = len(JAVA_MAGIC) + 8
SIZE_BYTES = 4
# A varint of 32 bits takes at most this many bytes.
VARINT_BYTES_MAX = 5
# Lengths of a literal above this follow in 1 to 4 bytes.
LONG_LITERAL = 60
# Bytes of the distance in a back reference, by the two lowest bits of its tag.
WIDTHS = (0, 1, 2, 4)


def _meaning(tag: int) -> tuple[int, int, int]:
    """Return the length of an element, the bytes of its distance (a literal has none), and the distance's bits in the tag."""
    if tag & 3 == 1:
        return (tag >> 2 & 7) + 4, 1, tag >> 5 << 8
    return (tag >> 2) + 1, WIDTHS[tag & 3], 0


TAGS = tuple(map(_meaning, range(256)))


def decompress(data: bytes, bytes_max: int) -> bytes:
    """Return the decompressed bytes. Raises MalformedData, also for more than `bytes_max` of them."""
    if not data.startswith(JAVA_MAGIC):
        return bytes(_block(data, 0, len(data), bytes_max))
    found = bytearray()
    at = JAVA_HEADER_BYTES
    while at < len(data):
        start = at + SIZE_BYTES
        at = start + int.from_bytes(data[at:start], "big")
        if at > len(data):
            raise MalformedData("its snappy data end within a block")
        found += _block(data, start, at, bytes_max - len(found))
    return bytes(found)


def _block(data: bytes, at: int, end: int, bytes_max: int) -> bytearray:
    """Decompress one block from `at` to `end`. Raises MalformedData."""
    size, at = _size(data, at, end)
    if size > bytes_max:
        raise MalformedData(
            f"its snappy data claim {size:,} bytes decompressed, more than {bytes_max:,} are not read"
        )
    found = bytearray()
    try:
        at = _append_elements(found, data, at, end, size)
    except IndexError:
        raise MalformedData("its snappy data end within an element") from None
    if at != end or len(found) != size:
        raise MalformedData(f"its snappy data do not have the {size:,} bytes that they claim")
    return found


def _append_elements(found: bytearray, data: bytes, at: int, end: int, size: int) -> int:
    """Append what the elements up to `end` stand for, or a little more than `size` bytes; return the index after them."""
    while at < end and len(found) <= size:
        length, width, high = TAGS[data[at]]
        at += 1 + width
        if not width:
            if length > LONG_LITERAL:
                length, at = _long_literal(data, at, length)
            found += data[at : at + length]
            at += length
            continue
        if width == 2:
            distance = data[at - 2] | data[at - 1] << 8
        else:
            distance = high | data[at - 1] if width == 1 else int.from_bytes(data[at - width : at], "little")
        start = len(found) - distance
        if start >= 0 and length <= distance:
            # The common case of `append_copy`, without its call.
            found += found[start : start + length]
        else:
            append_copy(found, distance, length)
    return at


def _long_literal(data: bytes, at: int, length: int) -> tuple[int, int]:
    """Return the length of a literal that stands behind its tag, and the index of its first byte."""
    width = length - LONG_LITERAL
    return int.from_bytes(data[at : at + width], "little") + 1, at + width


def _size(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read the varint of the size; return it and the index after it."""
    size = 0
    for index in range(min(VARINT_BYTES_MAX, end - at)):
        byte = data[at + index]
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return size, at + index + 1
    raise MalformedData("its snappy data have no size")
