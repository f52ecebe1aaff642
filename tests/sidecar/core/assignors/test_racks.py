"""Sticky assignment where members and replicas have racks: balance first, then what is near, then what one has."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings

from rota_sidecar.core.assignors import min_cost_flow
from rota_sidecar.core.assignors.index import index_group
from rota_sidecar.core.assignors.model import Group, Subscriber, Topic
from rota_sidecar.core.assignors.sticky import CooperativeSticky, Sticky
from tests.sidecar.core.assignors import oracle
from tests.sidecar.core.assignors.groups import (
    Spread,
    as_text,
    by_topic,
    everything,
    groups,
    holding,
    member,
    settled,
    spread,
)
from tests.sidecar.core.assignors.racks import NAMED, RACKS, far_from, random_racks, spread_over, with_racks

EXAMPLES = settings(max_examples=60, derandomize=True)
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
def test_p8_what_was_given_is_given_again(group: Group) -> None:
    plan = Sticky().assign(group)
    assert spread(Sticky().assign(holding(group, plan, 9))) == spread(plan)


def test_a_plan_that_is_fed_back_stays_in_random_groups_with_stale_claims() -> None:
    chance = Random(20)
    rounds = Counter[int]()
    for _ in range(400):
        group = random_racks(chance)
        plan = Sticky().assign(group)
        assert spread(Sticky().assign(holding(group, plan, 9))) == spread(plan)
        rounds[settled(CooperativeSticky(), group)[1]] += 1
    assert max(rounds) <= 3
    assert rounds[0] + rounds[1] >= 390


@pytest.mark.parametrize(("group", "far"), NAMED)
def test_no_more_are_far_than_must_be_and_then_nothing_moves(group: Group, far: int) -> None:
    plan = Sticky().assign(group)
    assert far_from(group, plan) == far
    assert spread(Sticky().assign(holding(group, plan, 9))) == spread(plan)


def test_rack_local_partitions_come_before_owned_ones() -> None:
    members = {"m1": member("t", "t-0", 1, rack="d"), "m2": member("t", rack="a")}
    group = Group(members, {"t": Topic(2, [frozenset("ad"), frozenset("cd")])})
    assert as_text(Sticky().assign(group)) == {"m1": "t-1", "m2": "t-0"}
    assert as_text(CooperativeSticky().assign(group)) == {"m1": "t-1", "m2": ""}


def all_plans(group: Group) -> Iterator[Spread]:
    partitions = sorted(everything(group))
    takers = [
        [name for name, each in group.members.items() if topic in each.topics] for topic, _ in partitions
    ]
    for owners in product(*takers):
        found: Spread = {name: set() for name in group.members}
        for partition, owner in zip(partitions, owners, strict=True):
            found[owner].add(partition)
        yield found


def squares(found: Spread) -> int:
    return sum(len(partitions) ** 2 for partitions in found.values())


def test_of_all_plans_that_are_as_even_none_has_fewer_far_and_then_fewer_moves() -> None:
    chance = Random(4)
    drawn = [random_racks(chance, members=3, topics=2, partitions=3) for _ in range(250)]
    # Where all partitions have the same racks these play no part, as with Kafka.
    for group in (group for group in drawn if index_group(group).racks):
        claims = oracle.claims_that_count(group)

        def cost(found: Spread, group: Group = group, claims: Spread = claims) -> tuple[int, int, int]:
            moved = sum(len(claims[name] - partitions) for name, partitions in found.items())
            return (
                squares(found),
                far_from(group, {name: by_topic(each) for name, each in found.items()}),
                moved,
            )

        found = cost(spread(Sticky().assign(group)))
        assert found == min(each for each in map(cost, all_plans(group)) if each[0] == found[0])


def one_topic(racks: str) -> dict[str, Topic]:
    return {"t": Topic(len(racks), [frozenset(rack) for rack in racks])}


def test_who_has_what_is_far_for_all_keeps_it() -> None:
    members = {
        "a": member("t", "t-0 t-1", 1, rack="a"),
        "c": member("t", "t-3 t-4", 1, rack="c"),
        "d": member("t", "t-2 t-5", 1, rack="d"),
    }
    for racks in ("aabbbb", "aabbbbbb"):
        found = spread(CooperativeSticky().assign(Group(members, one_topic(racks))))
        for name, each in members.items():
            assert found[name] >= spread({name: each.owned})[name]


def test_one_more_than_others_stays_where_it_is_if_nothing_comes_nearer() -> None:
    members = {
        "a": member("t", "t-0", 1, rack="a"),
        "c": member("t", "t-1", 1, rack="c"),
        "d": member("t", "t-2 t-3", 1, rack="d"),
    }
    plan = CooperativeSticky().assign(Group(members, one_topic("abbb")))
    assert all(plan[name] is each.owned for name, each in members.items())


def test_a_member_with_one_more_has_a_rack_local_one() -> None:
    topics = {"t": Topic(4, [frozenset(rack) for rack in "abcb"])}
    group = Group({rack: member("t", rack=rack) for rack in RACKS}, topics)
    assert far_from(group, Sticky().assign(group)) == 0


def test_the_search_is_bounded_and_what_it_leaves_is_a_plan_in_balance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = fresh_random_racks(30)
    best = far_from(group, Sticky().assign(group))
    monkeypatch.setattr(min_cost_flow, "WORK_MAX", 0)
    plan = Sticky().assign(group)
    assert far_from(group, plan) > best
    assert oracle.could_be_lighter(group, spread(plan)) == []
    assert sorted(p for partitions in spread(plan).values() for p in partitions) == sorted(everything(group))


def fresh_random_racks(members: int) -> Group:
    group = random_racks(Random(members), members=members, topics=8, partitions=40)
    return Group({name: replace(each, owned={}) for name, each in group.members.items()}, group.topics)
