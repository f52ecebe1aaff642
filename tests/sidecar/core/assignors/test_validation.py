"""Plans of strategies that are not ours are looked through: each thing that can be wrong is said in a sentence."""

import pytest
from hypothesis import given, settings

from rota_sidecar.core.assignors.built_in import NAMES, built_in
from rota_sidecar.core.assignors.model import Group, Plan
from rota_sidecar.core.assignors.validation import plan_problem
from tests.sidecar.core.assignors.groups import group, groups, member, sizes_of

EXAMPLES = settings(max_examples=60, derandomize=True)
GROUP = group({"a": member("t", "t-0", 1), "b": member("t u"), "c": member("t", "u-0", 1)}, t=2, u=1, v=1)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"a": {}, "b": {}}, "no entry for member c"),
        ({"a": {}, "b": {}, "c": {}, "d": {}}, "names d, which is not a member"),
        ({"a": {"w": [0]}, "b": {}, "c": {}}, "gives a partitions of w, which does not exist"),
        ({"a": {"u": [0]}, "b": {}, "c": {}}, "gives a partitions of u, which it does not take"),
        ({"a": {"t": [2]}, "b": {}, "c": {}}, "gives a t-2, which does not exist"),
        ({"a": {"t": [-1]}, "b": {}, "c": {}}, "gives a t--1, which does not exist"),
        ({"a": {"t": [1]}, "b": {"t": [1]}, "c": {}}, "gives t-1 to a and to b"),
        ({"a": {"t": [1, 1]}, "b": {}, "c": {}}, "gives t-1 to a and to a"),
    ],
)
def test_what_is_wrong_is_said(plan: Plan, message: str) -> None:
    for cooperative in (True, False):
        assert message in plan_problem(GROUP, plan, cooperative)


@pytest.mark.parametrize("plan", [{"a": {}, "b": {"t": [0]}, "c": {}}, {"a": {}, "b": {"u": [0]}, "c": {}}])
def test_what_somebody_still_has_is_given_by_eager_strategies_only(plan: Plan) -> None:
    assert plan_problem(GROUP, plan, cooperative=False) == ""
    assert "still has: leave it out for a round" in plan_problem(GROUP, plan, cooperative=True)


def test_what_two_claim_equally_is_given_to_nobody() -> None:
    torn = group({"a": member("t", "t-0", 1), "b": member("t", "t-0", 1)}, t=1)
    assert "two members claim" in plan_problem(torn, {"a": {"t": [0]}, "b": {}}, cooperative=True)


@EXAMPLES
@given(groups())
def test_nothing_is_wrong_with_the_plans_of_ours(of: Group) -> None:
    for name, strategy in built_in(100).items():
        assert strategy.name == name
        assert plan_problem(of, strategy.assign(of), strategy.cooperative) == ""


def test_they_have_the_names_that_kafka_shows() -> None:
    assert tuple(built_in(0)) == NAMES
    assert [name for name, each in built_in(0).items() if each.cooperative] == list(NAMES[3:])


def test_a_group_without_members_has_a_plan() -> None:
    assert [dict(each.assign(group({}, t=3))) for each in built_in(100).values()] == [{}] * len(NAMES)


@pytest.mark.parametrize("partitions", [0, 1, 2])
def test_there_may_be_more_members_than_partitions(partitions: int) -> None:
    of = group(dict.fromkeys("abc", member("t")), t=partitions)
    for each in built_in(100).values():
        assert sorted(sizes_of(each.assign(of))) == [0] * (3 - partitions) + [1] * partitions
