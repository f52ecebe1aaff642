"""Subscriptions and assignments are Kafka's bytes: they come back as they went in, and garbage is refused."""

import struct
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from rota_proto.consumer_protocol import Malformed, Subscription
from rota_sidecar.core.consumer_protocol.assignment import Assignment, decode_assignment, encode_assignment
from rota_sidecar.core.consumer_protocol.subscription import (
    decode_subscription,
    encode_subscription,
)
from rota_sidecar.core.consumer_protocol.user_data import decode_sticky_data, encode_sticky_data
from tests.sidecar.core.consumer_protocol.messages import ASSIGNMENT, OWNED, SUBSCRIPTION, Lists, lists

FULL = Subscription(["a", "b"], b"x", {"a": [0, 7]}, 4, "r1")
# Where fields of later versions begin: a blob that ends there is read as one without them.
FIELD_ENDS = {len(encode_subscription(FULL)) - length for length in (0, 4, 8, 8 + 19)}


def plain(subscription: Subscription) -> Subscription:
    return replace(subscription, owned=lists(subscription.owned))


def theirs(subscription: Subscription, version: int) -> bytes:
    """The same in the words of kafka-python."""
    schema = ConsumerProtocolSubscription
    encoded: bytes = schema(
        topics=list(subscription.topics),
        user_data=subscription.user_data or None,
        owned_partitions=[
            schema.TopicPartition(topic=t, partitions=n) for t, n in subscription.owned.items()
        ],
        generation_id=subscription.generation,
        rack_id=subscription.rack or None,
    ).encode(version=version)
    return encoded


@given(SUBSCRIPTION)
def test_a_subscription_comes_back_as_it_went_in(subscription: Subscription) -> None:
    assert plain(decode_subscription(encode_subscription(subscription))) == subscription


@given(ASSIGNMENT)
def test_an_assignment_comes_back_as_it_went_in(assignment: Assignment) -> None:
    found = decode_assignment(encode_assignment(assignment))
    assert Assignment(lists(found.partitions), found.user_data) == assignment


@given(SUBSCRIPTION)
def test_subscriptions_are_the_bytes_of_another_client(subscription: Subscription) -> None:
    assert encode_subscription(subscription) == theirs(subscription, 3)


@given(SUBSCRIPTION, st.integers(0, 3))
def test_every_version_of_another_client_is_read(subscription: Subscription, version: int) -> None:
    known = replace(
        subscription,
        owned=subscription.owned if version >= 1 else {},
        generation=subscription.generation if version >= 2 else -1,
        rack=subscription.rack if version >= 3 else "",
    )
    assert plain(decode_subscription(theirs(subscription, version))) == known


@given(ASSIGNMENT, st.integers(0, 3))
def test_assignments_are_the_bytes_of_another_client(assignment: Assignment, version: int) -> None:
    schema = ConsumerProtocolAssignment
    others = schema(
        assigned_partitions=[
            schema.TopicPartition(topic=topic, partitions=list(numbers))
            for topic, numbers in assignment.partitions.items()
        ],
        user_data=assignment.user_data or None,
    )
    assert encode_assignment(assignment) == others.encode(version=3)
    assert lists(decode_assignment(others.encode(version=version)).partitions) == assignment.partitions


@given(OWNED, st.integers(0, 2**31 - 1))
def test_claims_of_sticky_are_the_bytes_of_another_client(owned: Lists, generation: int) -> None:
    schema = StickyAssignorUserData
    others = schema(
        previous_assignment=[schema.TopicPartition(topic=topic, partitions=n) for topic, n in owned.items()],
        generation=generation,
    )
    # That client writes a version before them; the Java client, which was first, does not.
    assert encode_sticky_data(owned, generation) == others.encode(version=1)[2:]
    found, found_generation = decode_sticky_data(others.encode(version=0)[2:])
    assert (lists(found), found_generation) == (owned, -1)


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    newer = struct.pack(">h", 9) + encode_subscription(FULL)[2:] + b"news"
    assert plain(decode_subscription(newer)) == FULL
    assignment = struct.pack(">h", 9) + encode_assignment(Assignment({"a": [3]}, b"u"))[2:] + b"news"
    found = decode_assignment(assignment)
    assert (lists(found.partitions), found.user_data) == ({"a": [3]}, b"u")


def test_fields_that_an_old_client_leaves_out_at_the_end_are_not_there() -> None:
    old = struct.pack(">h", 1) + theirs(FULL, 0)[2:]
    assert plain(decode_subscription(old)) == Subscription(["a", "b"], b"x")


def test_a_topic_that_occurs_twice_is_merged() -> None:
    schema = ConsumerProtocolAssignment
    twice = [schema.TopicPartition(topic="a", partitions=[number]) for number in (4, 2)]
    found = decode_assignment(schema(assigned_partitions=twice, user_data=None).encode(version=0))
    assert lists(found.partitions) == {"a": [4, 2]}


def test_no_bytes_are_no_assignment_and_no_subscription() -> None:
    assert decode_assignment(b"") == Assignment({})
    with pytest.raises(Malformed, match="malformed subscription of 0 bytes"):
        decode_subscription(b"")


@pytest.mark.parametrize("length", sorted(set(range(len(encode_subscription(FULL)))) - FIELD_ENDS))
def test_a_subscription_that_was_cut_is_refused(length: int) -> None:
    with pytest.raises(Malformed, match="malformed subscription of"):
        decode_subscription(encode_subscription(FULL)[:length])


@pytest.mark.parametrize(
    ("garbage", "message"),
    [
        (b"\xff\xff\0\0\0\0", "invalid version -1"),
        (b"\0\0\x7f\xff\xff\xff\0\0\0\0", "an array of 2147483647 elements"),
        (b"\0\0\0\0\0\x01\xff\xff\0\0\0\0", "a string of -1 bytes with 4 bytes left"),
        (b"\0\0\0\0\0\x01\0\x01\xff\0\0\0\0", "invalid UTF-8"),
        (b"\0\0\0\0\0\0\xff\xff\xff\xfe", "-2 bytes expected"),
        (encode_subscription(FULL) + b"!", "1 unexpected bytes after version 3"),
    ],
)
def test_garbage_is_refused_with_a_message(garbage: bytes, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        decode_subscription(garbage)


@given(st.binary(max_size=80))
def test_random_bytes_are_refused_or_mean_exactly_what_they_say(data: bytes) -> None:
    with suppress(Malformed):
        found = decode_assignment(data)
        again = decode_assignment(encode_assignment(found))
        kept = {topic: numbers for topic, numbers in found.partitions.items() if numbers}
        assert (again.partitions, again.user_data) == (kept, found.user_data)
    with suppress(Malformed):
        subscription = decode_subscription(data)
        assert list(decode_subscription(encode_subscription(subscription)).topics) == subscription.topics


def test_what_kafka_cannot_name_is_refused_before_it_is_sent() -> None:
    with pytest.raises(Malformed, match="above 2147483647"):
        encode_assignment(Assignment({"a": [2**31]}))
    with pytest.raises(Malformed, match="shorten it"):
        encode_assignment(Assignment({"a" * 40_000: [1]}))
