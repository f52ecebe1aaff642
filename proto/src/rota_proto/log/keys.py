"""
Compute the partition of a record with a key as Kafka's own clients do, so that all producers can share a topic.

Called by producers.
"""

import struct

MASK = 0xFFFF_FFFF
M = 0x5BD1_E995
SEED = 0x9747_B28C


def murmur2(data: bytes) -> int:
    """
    Return Kafka's hash of a key, from 0 to 2^31 - 1; the partition is the hash modulo the number of partitions.

    >>> murmur2(b"key") % 6
    1
    """
    length = len(data)
    h = SEED ^ length
    blocks = length // 4
    for k in struct.unpack_from(f"<{blocks}I", data):
        k = k * M & MASK
        h = (h * M & MASK) ^ ((k ^ k >> 24) * M & MASK)
    rest = data[blocks * 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * M & MASK
    h = (h ^ h >> 13) * M & MASK
    return (h ^ h >> 15) & 0x7FFF_FFFF
