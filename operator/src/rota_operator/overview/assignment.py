"""Reads what a group's leader has assigned to a member: Kafka's consumer protocol, which is the same on both engines."""

import struct
from collections.abc import Iterator
from typing import NamedTuple


class Partition(NamedTuple):
    """Topic and partition number."""

    topic: str
    number: int

    @property
    def text(self) -> str:
        """Display form, TOPIC-NUMBER."""
        return f"{self.topic}-{self.number}"


class MalformedAssignment(Exception):
    """The bytes are not an assignment of Kafka's consumer protocol."""


def partitions_of(assignment: bytes) -> frozenset[Partition]:
    """None where nothing was assigned. Raises Unreadable."""
    if not assignment:
        return frozenset()
    try:
        return frozenset(_partitions(assignment))
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedAssignment(f"the assignment is cut short, or no text ({error})") from None


def _partitions(assignment: bytes) -> Iterator[Partition]:
    # Behind the version; later versions only add to the end.
    (topics,), at = struct.unpack_from(">i", assignment, 2), 6
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", assignment, at)
        (name,) = struct.unpack_from(f">{size}s", assignment, at + 2)
        at += 2 + size
        (count,) = struct.unpack_from(">i", assignment, at)
        numbers = struct.unpack_from(f">{count}i", assignment, at + 4)
        at += 4 + 4 * count
        yield from (Partition(name.decode(), number) for number in numbers)
