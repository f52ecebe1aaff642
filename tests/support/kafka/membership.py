"""Read the membership of a confluent-kafka consumer from librdkafka's own bytes."""

import struct

from confluent_kafka import Consumer

from rota.metadata import GroupMetadata
from rota.producer.kafka_engine import GROUP_METADATA_MAGIC


def metadata_of(consumer: Consumer) -> GroupMetadata:
    """Membership of the consumer now."""
    data: bytes = consumer.consumer_group_metadata()
    assert data.startswith(GROUP_METADATA_MAGIC)
    (generation,) = struct.unpack_from("=i", data, len(GROUP_METADATA_MAGIC))
    group, member, rest = data[len(GROUP_METADATA_MAGIC) + 4 :].split(b"\0", 2)
    instance = None if rest == b"\1" else rest[1:-1].decode()
    return GroupMetadata(
        group_id=group.decode(),
        incarnation=0,
        generation_id=generation,
        member_id=member.decode(),
        group_instance_id=instance,
    )
