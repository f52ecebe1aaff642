"""Sticky assignment where members and replicas have racks: balance first, then what is near, then what one has."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings

from rota_sidecar.assignors.flow import Flow
from rota_sidecar.assignors.model import Group, Subscriber, Topic
from rota_sidecar.assignors.sticky import CooperativeSticky, Sticky
from tests.sidecar.assignors import oracle
from tests.sidecar.assignors.groups import everything, groups, holding, member, settled, spread
from tests.sidecar.assignors.racks import RACKS, far_from, spread_over, with_racks

EXAMPLES = settings(max_examples=60, derandomize=True, deadline=None)
EQUAL = {rack: member("t1 t2 t3", rack=rack) for rack in RACKS}
THIRD_TAKES_LESS = {**EQUAL, "c": member("t1 t3", rack="c")}


@pytest.mark.parametrize(
    ("members", "brokers", "replicas", "far"),
    [
        (EQUAL, 3, 1, 0),
        (EQUAL, 3, 2, 0),
        (EQUAL, 2, 2, 5),
        (EQUAL, 2, 1, 5),
        (THIRD_TAKES_LESS, 3, 1, 4),
        (THIRD_TAKES_LESS, 3, 2, 0),
        (THIRD_TAKES_LESS, 2, 2, 5),
        (THIRD_TAKES_LESS, 2, 1, 5),
    ],
)
def test_as_few_are_far_as_was_published(
    members: dict[str, Subscriber], brokers: int, replicas: int, far: int
) -> None:
    group = Group(members, spread_over(brokers, replicas))
    assert far_from(group, Sticky().assign(group)) == far


@EXAMPLES
@given(with_racks(groups()))
def test_p1_p2_p6_p15_racks_change_nothing_about_balance(group: Group) -> None:
    found = spread(Sticky().assign(group))
    assert sorted(p for partitions in found.values() for p in partitions) == sorted(everything(group))
    assert oracle.could_be_lighter(group, found) == []


@EXAMPLES
@given(with_racks(groups(equal=True)))
def test_p4_p15_with_equal_subscriptions_it_is_even(group: Group) -> None:
    sizes = sorted(len(partitions) for partitions in spread(Sticky().assign(group)).values())
    assert sizes[-1] - sizes[0] <= 1


@EXAMPLES
@given(groups())
def test_p15_replicas_everywhere_change_nothing(group: Group) -> None:
    members = {
        name: replace(each, rack=rack)
        for (name, each), rack in zip(group.members.items(), RACKS * 2, strict=False)
    }
    topics = {
        name: Topic(topic.partitions, [frozenset(RACKS)] * topic.partitions)
        for name, topic in group.topics.items()
    }
    assert spread(Sticky().assign(Group(members, topics))) == spread(Sticky().assign(group))


@EXAMPLES
@given(with_racks(groups()))
def test_p13_nobody_is_given_what_somebody_else_still_has(group: Group) -> None:
    holders = oracle.holders(group)
    for name, partitions in spread(CooperativeSticky().assign(group)).items():
        assert all(holders.get(partition, name) == name for partition in partitions)


@EXAMPLES
@given(with_racks(groups()))
def test_p14_it_is_settled_three_rounds_later(group: Group) -> None:
    last, rounds = settled(CooperativeSticky(), group)
    assert rounds <= 3
    assert (
        oracle.could_be_lighter(last, spread({name: each.owned for name, each in last.members.items()})) == []
    )


@EXAMPLES
@given(with_racks(groups()))
def test_p8_once_more_moves_only_what_comes_nearer(group: Group) -> None:
    now = holding(group, Sticky().assign(group), 9)
    again = Sticky().assign(now)
    before = spread({name: each.owned for name, each in now.members.items()})
    if spread(again) != before:
        assert far_from(now, again) < far_from(now, {name: each.owned for name, each in now.members.items()})
    assert settled(Sticky(), group)[1] <= 3


def in_racks(racks: str) -> dict[str, Topic]:
    return {"t": Topic(len(racks), [frozenset(rack) for rack in racks])}


def test_who_has_what_is_far_for_all_keeps_it() -> None:
    members = {
        "a": member("t", "t-0 t-1", 1, rack="a"),
        "c": member("t", "t-3 t-4", 1, rack="c"),
        "d": member("t", "t-2 t-5", 1, rack="d"),
    }
    for racks in ("aabbbb", "aabbbbbb"):
        found = spread(CooperativeSticky().assign(Group(members, in_racks(racks))))
        for name, each in members.items():
            assert found[name] >= spread({name: each.owned})[name]


def test_one_more_than_others_stays_where_it_is_if_nothing_comes_nearer() -> None:
    members = {
        "a": member("t", "t-0", 1, rack="a"),
        "c": member("t", "t-1", 1, rack="c"),
        "d": member("t", "t-2 t-3", 1, rack="d"),
    }
    plan = CooperativeSticky().assign(Group(members, in_racks("abbb")))
    assert all(plan[name] is each.owned for name, each in members.items())


def nearest(supply: dict[frozenset[str], int], room: dict[str, int]) -> int:
    """By the theorem of marriages: as many as the tightest set of kinds of partitions lets through."""
    kinds = list(supply)
    total = sum(supply.values())
    return min(
        sum(room.get(rack, 0) for rack in frozenset().union(*some))
        + total
        - sum(supply[kind] for kind in some)
        for count in range(len(kinds) + 1)
        for some in combinations(kinds, count)
    )


def test_no_more_could_be_near() -> None:
    kinds = [frozenset(letters) for letters in ("a", "ab", "bc", "cd", "ad", "bcd", "")]
    for number in range(300):
        supply = {kind: (number * (place + 3) * 7) % 11 for place, kind in enumerate(kinds)}
        room = {rack: (number * (place + 5) * 3) % 13 for place, rack in enumerate("abcd")}
        flow = Flow(room, {}, 0)
        flow.fill(supply)
        assert flow.ways.total() == nearest(supply, room)
        assert all(sum(n for (_, r), n in flow.ways.items() if r == rack) <= room[rack] for rack in room)


def test_who_has_one_more_has_something_near() -> None:
    topics = {"t": Topic(4, [frozenset(rack) for rack in "abcb"])}
    group = Group({rack: member("t", rack=rack) for rack in RACKS}, topics)
    assert far_from(group, Sticky().assign(group)) == 0
