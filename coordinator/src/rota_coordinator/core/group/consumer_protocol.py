"""
Decode what the coordinator needs of Kafka's consumer protocol: subscribed topics, assigned and owned partitions.

The coordinator stores the bytes as members sent them. Malformed bytes are accepted: the group then has no known
topics, owners or claims.
"""

from itertools import repeat
from typing import NamedTuple

from rota_proto.consumer_protocol import NO_GENERATION, Malformed, Reader


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a subscription of any version; None: malformed."""
    reader = Reader(metadata, "subscription")
    try:
        reader.int16()
        return frozenset(reader.strings())
    except Malformed:
        return None


def assigned_partitions(assignment: bytes) -> frozenset[TopicPartition] | None:
    """Return the partitions of an assignment of any version; None: malformed."""
    if not assignment:
        return frozenset()
    reader = Reader(assignment, "assignment")
    try:
        reader.int16()
        return _partitions(reader)
    except Malformed:
        return None


class Claim(NamedTuple):
    """Partitions that a member reports as owned, and the generation in which it owned them; NO_GENERATION: unknown."""

    partitions: frozenset[TopicPartition]
    generation: int


NO_CLAIM = Claim(frozenset(), NO_GENERATION)


def claimed_partitions(metadata: bytes) -> Claim:
    """Return the claim of a subscription; NO_CLAIM: malformed, or version 0, which lacks owned partitions."""
    reader = Reader(metadata, "subscription")
    try:
        version = reader.int16()
        reader.strings()
        reader.nullable_bytes()
        if version < 1:
            return NO_CLAIM
        partitions = _partitions(reader)
        return Claim(partitions, reader.int32() if version > 1 else NO_GENERATION)
    except Malformed:
        return NO_CLAIM


def _partitions(reader: Reader) -> frozenset[TopicPartition]:
    found: set[TopicPartition] = set()
    for topic, numbers in reader.partitions().items():
        found.update(map(TopicPartition, repeat(topic), numbers))
    return frozenset(found)
