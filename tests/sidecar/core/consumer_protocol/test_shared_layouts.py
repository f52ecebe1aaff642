"""Shared layouts change nothing about the result of decoding, and unchanged partitions are encoded as they were received."""

from collections.abc import Sequence
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from rota_proto.consumer_protocol import Malformed, Subscription
from rota_sidecar.core.consumer_protocol.assignment import Assignment, encode_assignment
from rota_sidecar.core.consumer_protocol.offers import subscriber_of
from rota_sidecar.core.consumer_protocol.shared_layouts import SharedLayouts
from rota_sidecar.core.consumer_protocol.subscription import (
    decode_subscription,
    encode_subscription,
)
from rota_sidecar.core.consumer_protocol.user_data import encode_sticky_data
from rota_sidecar.core.consumer_protocol.wire import TopicHeaders
from tests.sidecar.core.consumer_protocol.messages import lists

EXAMPLES = settings(max_examples=80, derandomize=True)
# Few names of few lengths, so that many blobs look nearly like each other.
NAMES = st.lists(st.sampled_from(["a", "b", "aa", "ab"]), unique=True, max_size=3)
NUMBER = st.integers(-1, 2) | st.integers(2**31 - 2, 2**31 - 1)
OWNED = st.dictionaries(
    st.sampled_from(["a", "b", "aa"]), st.lists(NUMBER, min_size=1, max_size=2), max_size=3
)
GROUP = st.lists(
    st.builds(Subscription, topics=NAMES, owned=OWNED, generation=st.integers(-1, 3)), max_size=12
)


@EXAMPLES
@given(GROUP)
def test_members_are_read_as_if_each_were_alone(group: Sequence[Subscription]) -> None:
    shared = SharedLayouts()
    for subscription in group:
        found = decode_subscription(encode_subscription(subscription), shared)
        assert (found.topics, lists(found.owned)) == (subscription.topics, subscription.owned)
        assert found.generation == subscription.generation


@EXAMPLES
@given(GROUP)
def test_claims_of_sticky_are_read_as_if_each_were_alone(group: Sequence[Subscription]) -> None:
    shared = SharedLayouts()
    for each in group:
        metadata = encode_subscription(Subscription(each.topics, encode_sticky_data(each.owned, 3)))
        found = subscriber_of("sticky", metadata, None, shared)
        assert (list(found.topics), lists(found.owned)) == (each.topics, each.owned)


@EXAMPLES
@given(GROUP)
def test_what_comes_back_goes_out_as_it_came(group: Sequence[Subscription]) -> None:
    shared, heads = SharedLayouts(), TopicHeaders()
    for subscription in group:
        owned = decode_subscription(encode_subscription(subscription), shared).owned
        assert encode_assignment(Assignment(owned), heads) == encode_assignment(
            Assignment(subscription.owned)
        )


@EXAMPLES
@given(GROUP, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=4))
def test_what_was_damaged_is_read_as_if_it_were_alone(
    group: Sequence[Subscription], damages: Sequence[tuple[int, int]]
) -> None:
    shared = SharedLayouts()
    for subscription in (*group, *group):
        data = bytearray(encode_subscription(subscription))
        for index, byte in damages:
            data[index % len(data)] = byte
        for blob in (bytes(data), bytes(data)[: len(data) - len(damages)]):
            expected = got = None
            with suppress(Malformed):
                expected = decode_subscription(blob)
            with suppress(Malformed):
                got = decode_subscription(blob, shared)
            assert (got is None) == (expected is None)
            if got and expected:
                assert (got.topics, lists(got.owned)) == (expected.topics, lists(expected.owned))
                assert (got.generation, got.rack) == (expected.generation, expected.rack)


def test_members_with_equal_layouts_are_recognized_by_their_shape() -> None:
    shared = SharedLayouts()
    members = [Subscription(["t", "u"], owned={"t": [n], "u": [n + 1]}) for n in range(5)]
    found = [decode_subscription(encode_subscription(each), shared) for each in members]
    assert {id(each.topics) for each in found} == {id(found[0].topics)}
    assert len({id(each.owned.layout) for each in found}) == 1  # type: ignore[attr-defined]


def test_a_topic_that_occurs_twice_is_merged_each_time() -> None:
    once = encode_subscription(Subscription(["t"], owned={"t": [1], "u": [2]}))
    twice, shared = once.replace(b"\0\x01u\0", b"\0\x01t\0"), SharedLayouts()
    for _ in range(3):
        owned = decode_subscription(twice, shared).owned
        assert lists(owned) == {"t": [1, 2]}
        assert encode_assignment(Assignment(owned)) == encode_assignment(Assignment({"t": [1, 2]}))
