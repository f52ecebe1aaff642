"""Encodes and decodes subscriptions, which members send in JoinGroup; brokers and Kafka's tools read them too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rota_sidecar.core.consumer_protocol import wire
from rota_sidecar.core.consumer_protocol.shared_layouts import SharedLayouts

VERSION = 3
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Subscription:
    """Subscribed topics and owned partitions of a member."""

    topics: Sequence[str]
    user_data: bytes = b""
    owned: Mapping[str, Sequence[int]] = field(default_factory=dict)
    generation: int = NO_GENERATION
    rack: str = ""


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
    """Any version: of one that is newer what is known. `alike` remembers what others said. Raises Malformed."""
    reader = wire.Reader(data, "a subscription", shared)
    version = reader.int16()
    if version < 0:
        raise reader.malformed(f"there is no version {version}")
    topics = reader.texts()
    user_data = reader.blob()
    # Some clients say version 1 and leave out what it adds (sarama did for years): a field that begins where the
    # bytes end is not there.
    owned = reader.partitions() if version >= 1 and reader.left else {}
    generation = reader.int32() if version >= 2 and reader.left else NO_GENERATION
    rack = reader.nullable_text() if version >= 3 and reader.left else None
    if version <= VERSION and reader.left:
        raise reader.malformed(f"version {version} ends before byte {len(data)}, namely")
    return Subscription(topics, user_data, owned, generation, rack or "")
