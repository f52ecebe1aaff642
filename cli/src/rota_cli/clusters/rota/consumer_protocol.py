"""
Decode the subscription and the assignment of a member for display.

A group may have members of other clients and of newer versions: malformed bytes are shown as nothing, and never end a
command.
"""

from collections.abc import Mapping, Sequence

from rota.records import TopicPartition
from rota_cli.clusters.model import Subscription
from rota_proto import consumer_protocol
from rota_proto.consumer_protocol import Malformed, Reader


def decode_subscription(data: bytes) -> Subscription | None:
    """Decode a subscription; None if malformed. Fields that its version lacks keep their defaults."""
    reader = Reader(data, "subscription")
    try:
        found = consumer_protocol.decode_subscription(reader, reader.int16())
    except Malformed:
        return None
    return Subscription(found.topics, _partitions(found.owned), found.generation)


def decode_assignment(assignment: bytes) -> Sequence[TopicPartition]:
    """Decode an assignment, sorted; empty if malformed, or if the leader assigned nothing."""
    if not assignment:
        return []
    reader = Reader(assignment, "assignment")
    try:
        reader.int16()
        return sorted(_partitions(reader.partitions()))
    except Malformed:
        return []


def _partitions(by_topic: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, numbers in by_topic.items() for number in numbers]
