"""Decode the assignment of a member, which is in Kafka's consumer protocol on both engines."""

from typing import NamedTuple

from rota_proto.consumer_protocol import Reader


class Partition(NamedTuple):
    """Topic and partition number."""

    topic: str
    number: int

    @property
    def text(self) -> str:
        """Display form, TOPIC-NUMBER."""
        return f"{self.topic}-{self.number}"


def partitions_of(assignment: bytes) -> frozenset[Partition]:
    """Return the assigned partitions; empty bytes are an empty assignment. Raises Malformed."""
    if not assignment:
        return frozenset()
    reader = Reader(assignment, "assignment")
    reader.int16()
    return frozenset(
        Partition(topic, number) for topic, numbers in reader.partitions().items() for number in numbers
    )
