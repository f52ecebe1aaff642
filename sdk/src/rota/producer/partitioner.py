"""
Which partition a record belongs to.

Records with a key go where Kafka's own clients put them, so that writers of both kinds can share a topic.
"""

from collections.abc import Callable
from functools import lru_cache

from rota_proto.log.keys import murmur2

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""Of topic, key, value (as bytes) and the number of partitions: the partition."""

# Keys come back: most hashes are looked up, not computed.
CACHED_KEYS_MAX = 65_536
CACHED_KEY_BYTES_MAX = 256

_cached_hash = lru_cache(CACHED_KEYS_MAX)(murmur2)


def hash_of(key: bytes) -> int:
    """murmur2, remembered for keys that are short."""
    return _cached_hash(key) if len(key) <= CACHED_KEY_BYTES_MAX else murmur2(key)
