"""The leader's part: subscriptions become the assignments of all members, or the leader fails with one message."""

import asyncio
from collections.abc import Collection, Mapping

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.assignors.model import Assignor, Group, Plan, Topic
from rota_sidecar.core.consumer_protocol.assignment import decode_assignment
from rota_sidecar.core.consumer_protocol.offers import JoinOffer, metadata_for
from rota_sidecar.core.consumer_protocol.user_data import (
    decode_assignment_data,
    fingerprint_of_plan,
    fingerprint_of_topics,
)
from rota_sidecar.core.member.actions import ComputeAssignment
from rota_sidecar.core.member.messages import Request, Response
from rota_sidecar.engines.port import Refused
from rota_sidecar.membership.leader import Leader, RoundMembers, incarnation_for, read_members

WALL_MS = 1_700_000_000_000
LEADER = "a"


class Engine:
    """Answers what a leader asks."""

    def __init__(self, topics: Mapping[str, Topic], incarnation: int | None) -> None:
        self._topics = topics
        self._incarnation = incarnation

    async def find(self, within_s: float) -> pb.ErrorCode.ValueType:
        raise AssertionError("a leader has its coordinator")

    async def ask(self, request: Request, within_s: float) -> Response:
        raise AssertionError("a leader asks the group nothing")

    async def incarnation(self, within_s: float) -> int | None:
        return self._incarnation

    async def describe(self, names: Collection[str] | None, within_s: float) -> Mapping[str, Topic]:
        assert names is not None
        return {name: topic for name, topic in self._topics.items() if name in names}

    async def close(self) -> None:
        """Nothing is held."""


class Half:
    """Gives the last member half of all partitions, and withholds the rest."""

    name = "half"
    cooperative = True

    def assign(self, group: Group) -> Plan:
        *others, last = sorted(group.members)
        half = {name: range(topic.partitions // 2) for name, topic in group.topics.items()}
        return {last: half, **{member_id: {} for member_id in others}}


class Broken:
    """A strategy with a bug."""

    name = "broken"
    cooperative = False

    def assign(self, group: Group) -> Plan:
        raise KeyError("nobody")


def member(member_id: str, *topics: str, **known: int) -> pb.Member:
    """Return a member's subscription: it owns `owns` partitions of the first topic, with its known `incarnation` and `generation`."""
    owned = {topics[0]: range(known.get("owns", 0))} if topics else {}
    offer = JoinOffer(topics, owned, known.get("generation", -1), known.get("incarnation", -1))
    return pb.Member(member_id=member_id, metadata=metadata_for("half", offer))


def order(*members: pb.Member, generation: int = 5, strategy: str = "half") -> ComputeAssignment:
    return ComputeAssignment(1, LEADER, strategy, generation, members, 1_000)


def leader(topics: Mapping[str, Topic], *strategies: Assignor, incarnation: int | None = 9) -> Leader:
    engine = Engine(topics, incarnation)
    return Leader("orders", engine, engine, {each.name: each for each in strategies}, lambda: WALL_MS)


def test_everybody_is_given_its_part_under_the_groups_incarnation() -> None:
    led = asyncio.run(
        leader({"orders": Topic(4)}, Half()).lead(
            order(member("a", "orders"), member("b", "orders", "unknown"))
        )
    )
    assignments = {each.member_id: decode_assignment(each.assignment) for each in led.assignments}
    assert {topic: list(numbers) for topic, numbers in assignments["b"].partitions.items()} == {
        "orders": [0, 1]
    }
    assert not assignments["a"].partitions
    data = {name: decode_assignment_data(each.user_data) for name, each in assignments.items()}
    assert {each.incarnation for each in data.values()} == {9}
    assert data["a"].subscribed == fingerprint_of_topics(["orders"])
    assert data["b"].subscribed == fingerprint_of_topics(["orders", "unknown"])
    assert data["a"].planned == fingerprint_of_plan({"orders": 4, "unknown": 0}), "the leader's own says it"
    assert data["b"].planned == b""
    assert led.partitions == {"orders": 4, "unknown": 0}, "a topic that is made later is noticed"


def test_a_member_that_has_to_revoke_partitions_is_to_rejoin() -> None:
    work = order(member("a", "orders"), member("b", "orders", owns=4))
    led = asyncio.run(leader({"orders": Topic(4)}, Half()).lead(work))
    rejoins = {
        each.member_id: decode_assignment_data(decode_assignment(each.assignment).user_data).rejoins
        for each in led.assignments
    }
    assert rejoins == {"a": False, "b": True}


def test_a_strategy_that_fails_is_named() -> None:
    with pytest.raises(Refused, match=r"the strategy broken failed \(KeyError: 'nobody'\): correct it"):
        asyncio.run(leader({}, Broken()).lead(order(member("a", "orders"), strategy="broken")))


class Twice:
    """Gives all partitions to every member."""

    name = "twice"
    cooperative = False

    def assign(self, group: Group) -> Plan:
        everything = {name: range(topic.partitions) for name, topic in group.topics.items()}
        return dict.fromkeys(group.members, everything)


def test_a_plan_of_a_custom_strategy_is_validated_before_it_is_sent() -> None:
    work = order(member("a", "orders"), member("b", "orders"), strategy="twice")
    with pytest.raises(Refused, match=r"twice returned an invalid plan: .* orders-0 to a and to b"):
        asyncio.run(leader({"orders": Topic(4)}, Twice()).lead(work))


def test_a_strategy_that_was_given_up_meanwhile_is_not_led_by() -> None:
    with pytest.raises(Refused, match="which this member no longer offers"):
        asyncio.run(leader({}, Half()).lead(order(member("a", "orders"), strategy="other")))


def test_a_member_that_nobody_can_read_gets_nothing_and_stops_nobody() -> None:
    odd = pb.Member(member_id="0-odd", metadata=b"\x00")
    led = asyncio.run(leader({"orders": Topic(4)}, Half()).lead(order(member("a", "orders"), odd)))
    assert {each.member_id for each in led.assignments} == {"a", "0-odd"}


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({4: 70}, 70),  # somebody was in the last generation
        ({3: 70}, WALL_MS),  # whoever led the last one may have minted another
        ({3: WALL_MS + 5}, WALL_MS + 6),  # whose clock was ahead
        ({-1: -1}, WALL_MS),
        ({}, WALL_MS),
    ],
)
def test_where_the_engine_has_no_incarnation_one_is_kept_or_minted_above_all_known(
    known: Mapping[int, int], expected: int
) -> None:
    assert incarnation_for(order(), RoundMembers({}, known, []), WALL_MS) == expected


def test_what_members_know_is_read_by_generation() -> None:
    found = read_members(
        order(
            member("a", "orders", generation=4, incarnation=70),
            member("b", "orders", generation=3, incarnation=60),
            member("c", "orders"),
        )
    )
    assert found.incarnations == {4: 70, 3: 60, -1: -1}
