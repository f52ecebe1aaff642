"""What the leader gives a member. Read by the member, and by brokers and Kafka's tools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rota_sidecar.core.consumer_protocol import wire

VERSION = 3


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions of one member in one generation."""

    partitions: Mapping[str, Sequence[int]]
    user_data: bytes = b""


def encode_assignment(assignment: Assignment, headers: wire.TopicHeaders | None = None) -> bytes:
    """
    Version 3, which looks like version 0: those between added nothing to assignments.

    Who encodes many gives them all the same `heads`, a new one at first: names are written once then.
    """
    listed = wire.partitions(assignment.partitions, headers)
    return b"".join((wire.int16(VERSION), listed, wire.blob(assignment.user_data)))


def decode_assignment(data: bytes) -> Assignment:
    """Any version. No bytes at all are what a member gets whom the leader did not know: nothing. Raises Malformed."""
    if not data:
        return Assignment({})
    reader = wire.Reader(data, "an assignment")
    version = reader.int16()
    if version < 0:
        raise reader.malformed(f"there is no version {version}")
    found = Assignment(reader.partitions(), reader.blob())
    if version <= VERSION and reader.left:
        raise reader.malformed(f"version {version} ends before byte {len(data)}, namely")
    return found
