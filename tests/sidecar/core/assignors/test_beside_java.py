"""Random groups beside Kafka's own Java classes, all in one JVM: plans are the same, as even, or better."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from benchmarks.peers.java_assignors import JavaAssignors, java_assignors
from rota_sidecar.core.assignors.model import Assignor, Group, Plan
from rota_sidecar.core.assignors.range import Range
from rota_sidecar.core.assignors.round_robin import RoundRobin
from rota_sidecar.core.assignors.sticky import Sticky
from tests.sidecar.core.assignors import oracle
from tests.sidecar.core.assignors.groups import holding, spread
from tests.sidecar.core.assignors.racks import NAMED, far_from, random_racks

pytestmark = pytest.mark.kafka

GROUPS = 200
COOPERATIVE = "cooperative-sticky"


@pytest.fixture(scope="module")
def java() -> Iterator[JavaAssignors]:
    with java_assignors("256m") as running:
        yield running


def fresh(group: Group) -> Group:
    return Group(
        {name: replace(each, owned={}, generation=-1) for name, each in group.members.items()}, group.topics
    )


def squares(plan: Plan) -> int:
    return sum(len(partitions) ** 2 for partitions in spread(plan).values())


def moved(group: Group, plan: Plan) -> int:
    claims, found = oracle.claims_that_count(group), spread(plan)
    return sum(len(claims[name] - found[name]) for name in claims)


@pytest.mark.parametrize("assignor", [Range(), RoundRobin()], ids=lambda assignor: assignor.name)
def test_without_memory_plans_are_the_same(assignor: Assignor, java: JavaAssignors) -> None:
    chance = Random(1)
    for _ in range(GROUPS):
        group = fresh(random_racks(chance))
        assert spread(assignor.assign(group)) == spread(java.plan(assignor.name, group))


def test_no_plan_is_as_even_as_kafkas_and_has_more_far_partitions(java: JavaAssignors) -> None:
    chance = Random(2)
    ours_in_sum, theirs_in_sum = 0, 0
    for _ in range(GROUPS):
        group = fresh(random_racks(chance))
        ours, theirs = Sticky().assign(group), java.plan(COOPERATIVE, group)
        ours_in_sum += squares(ours)
        theirs_in_sum += squares(theirs)
        if squares(ours) == squares(theirs):
            assert far_from(group, ours) <= far_from(group, theirs)
    assert ours_in_sum <= theirs_in_sum


@pytest.mark.parametrize(("group", "far"), NAMED)
def test_the_named_groups_have_no_more_far_partitions_than_kafkas_plan(
    java: JavaAssignors, group: Group, far: int
) -> None:
    assert far <= far_from(group, java.plan(COOPERATIVE, group))


def test_when_members_join_and_leave_less_moves_in_sum(java: JavaAssignors) -> None:
    chance = Random(3)
    ours, theirs = 0, 0
    for _ in range(GROUPS):
        group = fresh(random_racks(chance))
        now = holding(group, Sticky().assign(group), 5)
        members = dict(now.members)
        if len(members) > 1 and chance.random() < 0.5:
            del members[chance.choice(sorted(members))]
        else:
            members["new"] = replace(members[chance.choice(sorted(members))], owned={}, generation=-1)
        changed = Group(members, now.topics)
        ours += moved(changed, Sticky().assign(changed))
        theirs += moved(changed, java.plan(COOPERATIVE, changed))
    assert ours <= theirs
