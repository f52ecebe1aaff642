"""Encodes and decodes assignments, which the leader sends to members; brokers and Kafka's tools read them too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rota_proto.consumer_protocol import VERSION, Reader
from rota_sidecar.core.consumer_protocol import wire


@dataclass(frozen=True, slots=True)
class Assignment:
    """Assignment of one member in one generation."""

    partitions: Mapping[str, Sequence[int]]
    user_data: bytes = b""


def encode_assignment(assignment: Assignment, headers: wire.TopicHeaders | None = None) -> bytes:
    """
    Encode version 3, whose layout is that of version 0.

    Who encodes many gives them all the same `heads`, a new one at first: names are written once then.
    """
    listed = wire.partitions(assignment.partitions, headers)
    return b"".join((wire.int16(VERSION), listed, wire.blob(assignment.user_data)))


def decode_assignment(data: bytes) -> Assignment:
    """Decode any version. Empty bytes, for a member that the leader did not know, are an empty assignment. Raises Malformed."""
    if not data:
        return Assignment({})
    reader = Reader(data, "assignment")
    version = reader.int16()
    if version < 0:
        raise reader.malformed(f"invalid version {version}")
    found = Assignment(reader.partitions(), reader.nullable_bytes())
    if version <= VERSION and reader.left:
        raise reader.malformed(f"{reader.left} unexpected bytes after version {version}")
    return found
