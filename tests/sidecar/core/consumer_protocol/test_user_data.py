"""User data of members has at most 256 bytes, and bytes of other clients do no harm."""

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_proto.consumer_protocol import Subscription
from rota_sidecar.core.consumer_protocol.offers import JoinOffer, member_data_of, metadata_for, subscriber_of
from rota_sidecar.core.consumer_protocol.subscription import (
    decode_subscription,
    encode_subscription,
)
from rota_sidecar.core.consumer_protocol.user_data import (
    RATES_MAX,
    UNKNOWN_RATE,
    USER_DATA_BYTES_MAX,
    AssignmentData,
    MemberData,
    decode_assignment_data,
    decode_member_data,
    decode_sticky_data,
    encode_assignment_data,
    encode_member_data,
    encode_sticky_data,
    fingerprint_of_plan,
    fingerprint_of_topics,
)
from tests.sidecar.core.consumer_protocol.messages import OWNED, Lists, lists

RATE = st.just(UNKNOWN_RATE) | st.just(0.0) | st.floats(0.01, 2e7)
OWN = JoinOffer(["t", "s"], {"t": [2, 0], "s": [1]}, 5, 77, {"t": {0: 8.0, 2: 64.0}, "s": {1: 0.0}}, "r1")


def is_close(found: float, rate: float) -> bool:
    return found == rate if rate <= 0 else abs(found - rate) <= 0.05 * rate


@given(st.integers(-1, 2**31 - 1), st.integers(-1, 2**63 - 1), st.lists(RATE, max_size=400))
def test_it_comes_back_as_far_as_there_is_room(
    generation: int, incarnation: int, rates: Sequence[float]
) -> None:
    encoded = encode_member_data(MemberData(generation, incarnation, rates))
    assert len(encoded) <= USER_DATA_BYTES_MAX
    found = decode_member_data(encoded)
    assert found.generation == generation
    assert found.incarnation == incarnation
    expected = list(rates[:RATES_MAX]) if incarnation >= 0 else []
    while expected and expected[-1] == UNKNOWN_RATE:
        expected.pop()
    assert len(found.rates) == len(expected)
    assert all(map(is_close, found.rates, expected))


@pytest.mark.parametrize("rate", [float("nan"), -3.0])
def test_a_rate_that_is_no_number_is_unknown(rate: float) -> None:
    assert decode_member_data(encode_member_data(MemberData(1, 1, [rate, 1.0]))).rates == (UNKNOWN_RATE, 1.0)


def test_rates_outside_of_the_scale_are_at_its_ends() -> None:
    lowest, highest, above_scale = decode_member_data(
        encode_member_data(MemberData(1, 1, [1e-9, 1e12, float("inf")]))
    ).rates
    assert 0 < lowest < 0.01
    assert highest == above_scale > 2e7


@given(st.binary(max_size=40))
def test_bytes_of_others_are_read_as_what_is_known(data: bytes) -> None:
    found = decode_member_data(data)
    assert found.generation == (struct.unpack(">i", data[:4])[0] if len(data) >= 4 else -1)
    if b"rota" not in data:
        assert (found.incarnation, found.rates) == (-1, ())
        assert decode_assignment_data(data) == AssignmentData()


PRINT = st.just(b"") | st.binary(min_size=8, max_size=8).filter(any)


@given(st.builds(AssignmentData, st.integers(0, 2**63 - 1), st.booleans(), PRINT, PRINT))
def test_what_a_leader_adds_comes_back(data: AssignmentData) -> None:
    assert decode_assignment_data(encode_assignment_data(data)) == data


@given(st.binary(max_size=20))
def test_a_leader_that_says_less_or_more_is_read_as_far_as_it_is_known(said: bytes) -> None:
    begin = encode_assignment_data(AssignmentData(7))
    assert decode_assignment_data(begin[:-1]) == AssignmentData(7)
    assert decode_assignment_data(begin + said).incarnation == 7
    whole = AssignmentData(7, rejoins=True, subscribed=b"12345678", planned=b"87654321")
    assert decode_assignment_data(encode_assignment_data(whole) + said) == whole


def test_a_fingerprint_knows_names_and_numbers_and_no_order() -> None:
    assert fingerprint_of_topics(["b", "a"]) == fingerprint_of_topics(["a", "b"])
    assert fingerprint_of_plan({"b": 0, "a": 2}) == fingerprint_of_plan({"a": 2, "b": 0})
    plans: list[dict[str, int]] = [{}, {"a": 1}, {"a": 2}, {"a": 1, "b": 0}, {"b": 1}]
    assert len({fingerprint_of_plan(plan) for plan in plans}) == len(plans)


@given(OWNED, st.integers(0, 2**31 - 1))
def test_case_54_claims_of_sticky_come_back(owned: Lists, generation: int) -> None:
    found, found_generation = decode_sticky_data(encode_sticky_data(owned, generation))
    assert (lists(found), found_generation) == (owned, generation)


@pytest.mark.parametrize("data", [b"", b"\xff" * 9, b"\0\0\0\1\0\1t\0\0\0\1", b"\0\0\0\0\0\0\0\1!"])
def test_case_54_bytes_that_are_no_claims_claim_nothing(data: bytes) -> None:
    assert decode_sticky_data(data) == ({}, -1)


def test_case_54_a_member_that_never_had_anything_says_nothing() -> None:
    assert encode_sticky_data({}, -1) == b""
    assert decode_sticky_data(encode_sticky_data({}, 3)) == ({}, 3)


def test_case_54_sticky_looks_at_user_data_only() -> None:
    data = encode_sticky_data({"t": [0, 2], "u": [1]}, 5)
    metadata = encode_subscription(Subscription(["t"], data, {"t": [1]}, 9))
    found = subscriber_of("sticky", metadata, None)
    assert (lists(found.owned), found.generation) == ({"t": [0, 2], "u": [1]}, 5)


@pytest.mark.parametrize(
    ("field", "data", "generation"),
    [
        (4, b"\0\0\0\7", 4),
        (-1, b"\0\0\0\7", 7),
        (-1, b"\0\7", -1),
        (-1, b"", -1),
        (-7, b"\xff\xff\xff\0", -1),
    ],
)
def test_case_55_generation_of_cooperative_sticky(field: int, data: bytes, generation: int) -> None:
    metadata = encode_subscription(Subscription(["t"], data, {"t": [1]}, field))
    found = subscriber_of("cooperative-sticky", metadata, "i1")
    assert (lists(found.owned), found.generation, found.instance_id) == ({"t": [1]}, generation, "i1")


def test_cooperative_members_say_what_they_have_and_how_much_arrives() -> None:
    metadata = metadata_for("load-aware-sticky", OWN)
    found = subscriber_of("load-aware-sticky", metadata, None)
    assert list(found.topics) == ["s", "t"]
    assert lists(found.owned) == {"s": [1], "t": [0, 2]}
    assert {topic: list(rates) for topic, rates in found.rates.items()} == {"s": [0.0], "t": [8.0, 64.0]}
    assert (found.generation, found.rack, member_data_of("load-aware-sticky", metadata).incarnation) == (
        5,
        "r1",
        77,
    )
    assert decode_subscription(metadata).user_data[:4] == b"\0\0\0\5"


def test_rates_for_which_there_was_no_room_are_unknown() -> None:
    many = JoinOffer(["t"], {"t": range(1_000)}, 1, 1, {"t": dict.fromkeys(range(1_000), 4.0)})
    found = subscriber_of("load-aware-sticky", metadata_for("load-aware-sticky", many), None)
    assert len(found.owned["t"]) == 1_000
    assert list(found.rates["t"]) == [4.0] * RATES_MAX


def test_members_remember_what_arrived_in_what_they_gave_up() -> None:
    offer = JoinOffer(
        ["t", "s"], {"t": [2]}, 5, 77, {"t": {0: 8.0, 2: 64.0}, "s": {7: 4.0}, "gone": {0: 1.0}}
    )
    found = subscriber_of("load-aware-sticky", metadata_for("load-aware-sticky", offer), None)
    assert (found.rates, found.former) == ({"t": (64.0,)}, {"t": {0: 8.0}, "s": {7: 4.0}})


def test_of_what_they_gave_up_the_heaviest_is_remembered() -> None:
    rates = {"t": {number: float(2 ** (number % 20)) for number in range(300)}}
    offer = JoinOffer(["t"], {"t": range(200)}, 5, 77, rates)
    metadata = metadata_for("load-aware-sticky", offer)
    assert len(decode_subscription(metadata).user_data) <= USER_DATA_BYTES_MAX
    found = subscriber_of("load-aware-sticky", metadata, None)
    assert len(found.rates["t"]) == 200
    assert set(found.former["t"].values()) == {2.0**19}


def test_nothing_of_ours_is_in_the_user_data_of_sticky() -> None:
    metadata = metadata_for("sticky", OWN)
    found = decode_subscription(metadata)
    assert found.user_data == encode_sticky_data({"s": [1], "t": [0, 2]}, 5)
    assert (found.owned, member_data_of("sticky", metadata).incarnation) == ({}, -1)


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_strategies_without_claims_send_none(strategy: str) -> None:
    metadata = metadata_for(strategy, OWN)
    assert decode_subscription(metadata).owned == {}
    assert member_data_of(strategy, metadata).incarnation == 77
    found = subscriber_of(strategy, encode_subscription(Subscription(["t"], b"", {"t": [1]}, 3)), "i1")
    assert (found.owned, found.generation, found.instance_id) == ({}, -1, "i1")
