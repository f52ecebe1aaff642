"""
A member of a group, as librdkafka writes it into bytes.

confluent-kafka hands these bytes from its consumer to its producer and calls them opaque. Rota's member is no
confluent consumer, so they are made here. The layout is private to librdkafka: the tests compare it with what this
version's own consumer gives, and a broker accepts it, and refuses an old generation in it.

    "CGMDv2:", generation (int32 of this machine), group id, 0, member id, 0, one byte: 1 without instance id,
    else 0 and the instance id, 0
"""

import struct

from rota.metadata import GroupMetadata

MAGIC = b"CGMDv2:"


def encoded(group: GroupMetadata) -> bytes:
    """What confluent-kafka's `send_offsets_to_transaction` takes for the group."""
    instance = b"\1" if group.group_instance_id is None else b"\0" + _terminated(group.group_instance_id)
    generation = struct.pack("=i", group.generation_id)
    return MAGIC + generation + _terminated(group.group_id) + _terminated(group.member_id) + instance


def _terminated(text: str) -> bytes:
    return text.encode() + b"\0"
