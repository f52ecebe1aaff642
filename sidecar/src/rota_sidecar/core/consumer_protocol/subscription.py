"""Encodes and decodes subscriptions, which members send in JoinGroup; brokers and Kafka's tools read them too."""

from rota_proto import consumer_protocol
from rota_proto.consumer_protocol import VERSION, Subscription
from rota_sidecar.core.consumer_protocol import wire
from rota_sidecar.core.consumer_protocol.shared_layouts import SharedLayouts


def encode_subscription(subscription: Subscription) -> bytes:
    """Encode version 3, with owned partitions, generation and rack."""
    return b"".join(
        (
            wire.int16(VERSION),
            wire.texts(subscription.topics),
            wire.blob(subscription.user_data),
            wire.partitions(subscription.owned),
            wire.int32(subscription.generation),
            wire.nullable_text(subscription.rack),
        )
    )


def decode_subscription(data: bytes, shared: SharedLayouts | None = None) -> Subscription:
    """Decode any version; `shared` caches topics and layouts for the members of one rebalance. Raises Malformed."""
    reader = wire.reader_of(data, "subscription", shared)
    version = reader.int16()
    if version < 0:
        raise reader.malformed(f"invalid version {version}")
    found = consumer_protocol.decode_subscription(reader, version)
    if version <= VERSION and reader.left:
        raise reader.malformed(f"{reader.left} unexpected bytes after version {version}")
    return found
