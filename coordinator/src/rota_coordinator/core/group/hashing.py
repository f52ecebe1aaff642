"""Java's string hash, which Kafka uses to map a group to a partition and to break ties between protocols."""

from functools import lru_cache

HASH_TABLE_SLOTS = 16
# Cache size, equal to the maximum number of groups: each request looks up the slot of its group.
REMEMBERED_SLOTS = 10_000


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode()`: signed 32 bits, over UTF-16 code units."""
    units = text.encode("utf-16-le")
    value = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(REMEMBERED_SLOTS)
def slot_of(group_id: str, slots: int) -> int:
    """Return the slot of a group; as in Kafka, the absolute value of the smallest integer is 0."""
    value = java_string_hash(group_id)
    return 0 if value == -(1 << 31) else abs(value) % slots


def java_hash_slot(text: str) -> int:
    """Return the slot of a text in a small Java hash table: the order in which Kafka walks through tied protocols."""
    value = java_string_hash(text) & 0xFFFFFFFF
    return (value ^ value >> 16) & (HASH_TABLE_SLOTS - 1)
