"""Offsets of a group: the application's values, and their form in requests."""

from collections.abc import Mapping
from typing import NamedTuple

from rota.records import TopicPartition
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

UNKNOWN_EPOCH = -1


class OffsetAndMetadata(NamedTuple):
    """The next offset to read, and a metadata text."""

    offset: int
    metadata: str = ""
    leader_epoch: int = UNKNOWN_EPOCH


class OffsetAndTimestamp(NamedTuple):
    """Offset and timestamp of a record that a lookup by time found."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = UNKNOWN_EPOCH


Offsets = Mapping[TopicPartition, OffsetAndMetadata | int] | Mapping[tuple[str, int], OffsetAndMetadata | int]
"""The next offset to read, by partition."""


def completed(offset: OffsetAndMetadata | int) -> OffsetAndMetadata:
    """Fill in metadata and leader epoch of a plain offset."""
    return OffsetAndMetadata(offset) if isinstance(offset, int) else offset


def by_topic(offsets: Offsets) -> list[pb.TopicOffsets]:
    """Build the offsets of a request, grouped by topic."""
    topics: dict[str, pb.TopicOffsets] = {}
    for (topic, partition), given in offsets.items():
        offset = completed(given)
        topics.setdefault(topic, pb.TopicOffsets(name=topic)).partitions.add(
            index=partition, offset=offset.offset, leader_epoch=offset.leader_epoch, metadata=offset.metadata
        )
    return list(topics.values())
