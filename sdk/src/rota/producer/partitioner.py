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
KEYS_REMEMBERED = 65_536
LONGEST_REMEMBERED = 256

_remembered = lru_cache(KEYS_REMEMBERED)(murmur2)


def hash_of(key: bytes) -> int:
    """murmur2, remembered for keys that are short."""
    return _remembered(key) if len(key) <= LONGEST_REMEMBERED else murmur2(key)
