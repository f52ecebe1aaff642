"""
Builds the subscription metadata that a member sends for each strategy, and decodes it for the leader.

Strategies differ in where owned partitions are: `sticky` has them in Kafka's user data; `range` and `roundrobin` have none;
all others send owned partitions and their generation in the subscription.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rota_proto.consumer_protocol import Malformed, Subscription
from rota_sidecar.core.assignors.model import NO_GENERATION, Subscriber
from rota_sidecar.core.consumer_protocol.shared_layouts import SharedLayouts
from rota_sidecar.core.consumer_protocol.subscription import (
    decode_subscription,
    encode_subscription,
)
from rota_sidecar.core.consumer_protocol.user_data import (
    NO_INCARNATION,
    UNKNOWN_RATE,
    MemberData,
    decode_member_data,
    decode_sticky_data,
    encode_member_data,
    encode_sticky_data,
)

STICKY = "sticky"
WITHOUT_CLAIMS = frozenset({"range", "roundrobin"})

Owned = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class JoinOffer:
    """State of a member that joins: topics, owned partitions, rates and rack."""

    topics: Sequence[str]
    owned: Owned = field(default_factory=dict)
    generation: int = NO_GENERATION
    incarnation: int = NO_INCARNATION
    # Arrival rates in records per second by topic and partition, as far as measured; also of partitions released since.
    rates: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    rack: str = ""


def metadata_for(strategy: str, offer: JoinOffer) -> bytes:
    """Return the encoded subscription for JoinGroup, as the strategy expects it."""
    topics = sorted(offer.topics)
    if strategy == STICKY:
        claimed = encode_sticky_data(_in_order(offer.owned), offer.generation)
        return encode_subscription(Subscription(topics, claimed, rack=offer.rack))
    if strategy in WITHOUT_CLAIMS:
        data = encode_member_data(MemberData(offer.generation, offer.incarnation))
        return encode_subscription(Subscription(topics, data, {}, offer.generation, offer.rack))
    owned = _in_order(offer.owned)
    rates, former = _rates(owned, offer.rates), _former(topics, offer)
    data = encode_member_data(MemberData(offer.generation, offer.incarnation, rates, former))
    return encode_subscription(Subscription(topics, data, owned, offer.generation, offer.rack))


def subscriber_of(
    strategy: str, metadata: bytes, instance_id: str | None, shared: SharedLayouts | None = None
) -> Subscriber:
    """
    Decode the metadata of one member for the leader. Raises Malformed.

    Who reads many gives them all the same `alike`, a new one at first: what they have in common is read once then.
    """
    found = decode_subscription(metadata, shared)
    if strategy == STICKY:
        owned, generation = decode_sticky_data(found.user_data, shared)
        return Subscriber(found.topics, owned, generation, instance_id, found.rack)
    if strategy in WITHOUT_CLAIMS:
        return Subscriber(found.topics, instance_id=instance_id, rack=found.rack)
    data = decode_member_data(found.user_data)
    generation = found.generation if found.generation >= 0 else data.generation
    owned, rates = _with_rates(found.owned, data.rates) if data.rates else (found.owned, {})
    return Subscriber(
        found.topics,
        owned,
        max(generation, NO_GENERATION),
        instance_id,
        found.rack,
        rates,
        _by_topic(found.topics, data.former),
    )


def member_data_of(strategy: str, metadata: bytes, shared: SharedLayouts | None = None) -> MemberData:
    """Return the last generation and incarnation of a Rota member. Raises Malformed."""
    if strategy == STICKY:
        return MemberData()
    return decode_member_data(decode_subscription(metadata, shared).user_data)


def topics_of(metadata: Iterable[bytes]) -> frozenset[str]:
    """Return the topics of all members; malformed metadata counts as no topics."""
    shared, found = SharedLayouts(), dict[int, Sequence[str]]()
    for each in metadata:
        try:
            topics = decode_subscription(each, shared).topics
        except Malformed:
            continue
        # Members that subscribe to the same topics share one list.
        found[id(topics)] = topics
    return frozenset(topic for topics in found.values() for topic in topics)


def _in_order(owned: Owned) -> Owned:
    return {topic: array("i", sorted(owned[topic])) for topic in sorted(owned)}


def _rates(owned: Owned, rates: Mapping[str, Mapping[int, float]]) -> Sequence[float]:
    return [
        rates.get(topic, {}).get(number, UNKNOWN_RATE)
        for topic, numbers in owned.items()
        for number in numbers
    ]


def _former(topics: Sequence[str], offer: JoinOffer) -> Sequence[tuple[int, int, float]]:
    return [
        (position, number, rate)
        for position, topic in enumerate(topics)
        for number, rate in offer.rates.get(topic, {}).items()
        if number not in offer.owned.get(topic, ())
    ]


def _by_topic(
    topics: Sequence[str], former: Sequence[tuple[int, int, float]]
) -> Mapping[str, Mapping[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for position, number, rate in former:
        if position < len(topics):
            found.setdefault(topics[position], {})[number] = rate
    return found


def _with_rates(owned: Owned, rates: Sequence[float]) -> tuple[Owned, Mapping[str, Sequence[float]]]:
    """Return owned partitions in the order of their rates, and the rates by topic as far as they were sent."""
    in_order = _in_order(owned)
    by_topic, begin = {}, 0
    for topic, numbers in in_order.items():
        if begin >= len(rates):
            break
        by_topic[topic] = rates[begin : begin + len(numbers)]
        begin += len(numbers)
    return in_order, by_topic
