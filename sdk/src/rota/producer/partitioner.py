"""
Which partition a record belongs to.

Records with a key go where Kafka's own clients put them, so that writers of both kinds can share a topic.
"""

import struct
from collections.abc import Callable
from functools import lru_cache

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""Of topic, key, value (as bytes) and the number of partitions: the partition."""

# Keys come back: most hashes are looked up, not computed.
KEYS_REMEMBERED = 65_536
LONGEST_REMEMBERED = 256
MASK = 0xFFFF_FFFF
M = 0x5BD1_E995
SEED = 0x9747_B28C


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, as a number from 0 to 2^31 - 1."""
    length = len(data)
    h = SEED ^ length
    words = length // 4
    for k in struct.unpack_from(f"<{words}I", data):
        k = k * M & MASK
        h = (h * M & MASK) ^ ((k ^ k >> 24) * M & MASK)
    rest = data[words * 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * M & MASK
    h = (h ^ h >> 13) * M & MASK
    return (h ^ h >> 15) & 0x7FFF_FFFF


_remembered = lru_cache(KEYS_REMEMBERED)(murmur2)


def hash_of(key: bytes) -> int:
    """murmur2, remembered for keys that are short."""
    return _remembered(key) if len(key) <= LONGEST_REMEMBERED else murmur2(key)
