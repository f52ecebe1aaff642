"""
Partition of a record with a key: the one that Kafka's own clients choose, so that both kinds of writers can share a topic.
"""

from collections.abc import Callable
from functools import lru_cache

from rota_proto.log.keys import murmur2

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""Function of topic, key and value (as bytes) and the number of partitions; returns the partition."""

# Keys repeat: most hashes are looked up, not computed.
CACHED_KEYS_MAX = 65_536
CACHED_KEY_BYTES_MAX = 256

_cached_hash = lru_cache(CACHED_KEYS_MAX)(murmur2)


def hash_of(key: bytes) -> int:
    """Compute murmur2, cached for short keys."""
    return _cached_hash(key) if len(key) <= CACHED_KEY_BYTES_MAX else murmur2(key)
