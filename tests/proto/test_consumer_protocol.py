"""One reader decodes the consumer protocol of every client and version, and refuses bytes that violate it."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from rota_proto.consumer_protocol import (
    NO_GENERATION,
    VERSION,
    Malformed,
    Reader,
    Subscription,
    decode_subscription,
)

TOPIC = st.text(min_size=1, max_size=12)
NUMBERS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6)
OWNED = st.dictionaries(TOPIC, NUMBERS, max_size=5)


def decoded(data: bytes) -> Subscription:
    """Decode a subscription with its version; numbers are lists, which can be compared."""
    reader = Reader(data, "subscription")
    found = decode_subscription(reader, reader.int16())
    return Subscription(found.topics, found.user_data, lists(found.owned), found.generation, found.rack)


def lists(by_topic: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    return {topic: list(numbers) for topic, numbers in by_topic.items()}


def encoded(owned: Mapping[str, Sequence[int]], version: int) -> bytes:
    """Encode a subscription with another client."""
    kafka = ConsumerProtocolSubscription
    data: bytes = kafka(
        topics=["a", "b"],
        user_data=b"x",
        owned_partitions=[kafka.TopicPartition(topic=t, partitions=n) for t, n in owned.items()],
        generation_id=4,
        rack_id="r1",
    ).encode(version=version)
    return data


@given(OWNED, st.integers(0, VERSION))
def test_a_subscription_has_the_fields_of_its_version(owned: dict[str, list[int]], version: int) -> None:
    assert decoded(encoded(owned, version)) == Subscription(
        ["a", "b"],
        b"x",
        owned if version >= 1 else {},
        4 if version >= 2 else NO_GENERATION,
        "r1" if version >= 3 else "",
    )


@given(OWNED)
def test_partitions_of_an_assignment_are_numbers_by_topic(owned: dict[str, list[int]]) -> None:
    kafka = ConsumerProtocolAssignment
    data = kafka(
        assigned_partitions=[kafka.TopicPartition(topic=t, partitions=n) for t, n in owned.items()],
        user_data=b"x",
    ).encode(version=0)
    reader = Reader(data, "assignment")
    assert (reader.int16(), lists(reader.partitions()), reader.nullable_bytes()) == (0, owned, b"x")
    assert reader.left == 0


def test_numbers_of_a_topic_that_occurs_twice_are_concatenated() -> None:
    once = b"\0\x01a\0\0\0\x01\0\0\0"
    reader = Reader(b"\0\0\0\x02" + once + b"\x04" + once + b"\x02", "assignment")
    assert lists(reader.partitions()) == {"a": [4, 2]}


def test_null_strings_and_null_bytes_are_known() -> None:
    reader = Reader(b"\xff\xff\0\0\xff\xff\xff\xff\0\0\0\0", "user data")
    assert (reader.nullable_string(), reader.nullable_string()) == (None, "")
    assert (reader.nullable_bytes(), reader.nullable_bytes(), reader.left) == (b"", b"", 0)


# Behind the version, the topics, the user data, the owned partitions and the generation: bytes that end there are those
# of a client that omits the fields of its version.
FULL = encoded({"a": [0, 7]}, VERSION)
FIELD_ENDS = {len(FULL) - behind for behind in (0, 4, 8, 27)}


@pytest.mark.parametrize("length", range(len(FULL)))
def test_a_truncated_subscription_is_refused_unless_it_ends_before_an_optional_field(length: int) -> None:
    if length in FIELD_ENDS:
        assert decoded(FULL[:length]).topics == ["a", "b"]
    else:
        with pytest.raises(Malformed, match=f"malformed subscription of {length} bytes: .* at byte "):
            decoded(FULL[:length])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\0\0", "4 bytes expected with 0 bytes left at byte 2"),
        (b"\0\0\0\0\0\x01\0", "no length of a string at byte 6"),
        (b"\0\0\0\0\0\x01\xff\xff", "a string of -1 bytes with 0 bytes left at byte 6"),
        (b"\0\0\0\0\0\x01\0\x01\xff", "invalid UTF-8 in a string at byte 6"),
        (b"\0\0\x7f\xff\xff\xff\0", "an array of 2147483647 elements with 1 bytes left at byte 6"),
        (b"\0\x01\0\0\0\0\0\0\0\0\0\0\0\x01\0\0", "no length of an array at byte 16"),
        (
            b"\0\x01\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\x02",
            "an array of 2 numbers with 0 bytes left at byte 16",
        ),
    ],
)
def test_a_refusal_names_the_element_and_its_position(data: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        decoded(data)
