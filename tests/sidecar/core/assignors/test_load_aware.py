"""`load-aware-sticky`: as even as rates say, within a budget, and nothing moves for nothing."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota_sidecar.core.assignors.load_aware import HYSTERESIS_PERCENT, LoadAwareSticky
from rota_sidecar.core.assignors.model import Group, Subscriber
from rota_sidecar.core.assignors.sticky import CooperativeSticky
from tests.sidecar.core.assignors import oracle
from tests.sidecar.core.assignors.groups import (
    Partition,
    Spread,
    as_text,
    everything,
    group,
    groups,
    holding,
    member,
    parsed,
    settled,
    sizes_of,
    spread,
)

EXAMPLES = settings(max_examples=60, derandomize=True)
RATE = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 3.0, 40.0, 1000.0])
PERCENT = st.sampled_from([0, 5, 30, 100])
Rates = Mapping[Partition, float]
ROUNDS = 40


def measuring(of: Group, rates: Rates) -> Group:
    """Return the group with rates: of the partitions that each member owns, and of all others as former ones."""

    def with_rates(each: Subscriber) -> Subscriber:
        measured = {
            topic: [rates.get((topic, n), -1.0) for n in numbers] for topic, numbers in each.owned.items()
        }
        former: dict[str, dict[int, float]] = {}
        for (topic, number), rate in rates.items():
            former.setdefault(topic, {})[number] = rate
        return replace(each, rates=measured, former=former)

    return Group({name: with_rates(each) for name, each in of.members.items()}, of.topics)


def owned(of: Group) -> Spread:
    return spread({name: each.owned for name, each in of.members.items()})


def heaviest(of: Group, rates: Rates) -> float:
    """Return the highest load of a member; idle and unknown partitions count as the guide says."""
    known = [rate for partition, rate in rates.items() if rate >= 0 and partition in everything(of)]
    mean = sum(known) / len(known) if known and sum(known) else 1.0
    weights = {p: max(rates[p], mean / 100) if rates.get(p, -1.0) >= 0 else mean for p in everything(of)}
    return max(sum(weights[p] for p in partitions) for partitions in owned(of).values())


@st.composite
def measured(draw: st.DrawFn) -> tuple[Group, Rates]:
    """A group at rest, and what arrives in its partitions."""
    of, _ = settled(CooperativeSticky(), draw(groups()))
    return of, {partition: draw(RATE) for partition in sorted(everything(of))}


def at_rest(of: Group, rates: Rates, percent: int) -> Group:
    for generation in range(200, 200 + ROUNDS):
        of = measuring(of, rates)
        plan = LoadAwareSticky(percent).assign(of)
        if spread(plan) == owned(of):
            return of
        of = holding(of, plan, generation)
    raise AssertionError(f"still moving after {ROUNDS} rounds")


@EXAMPLES
@given(groups(), st.lists(RATE, min_size=12, max_size=12), PERCENT)
def test_p1_p2_p3_p13_it_is_a_plan(of: Group, some: list[float], percent: int) -> None:
    rates = dict(zip(sorted(everything(of)), some, strict=False))
    measured = measuring(of, rates)
    found, holders = spread(LoadAwareSticky(percent).assign(measured)), oracle.holders(of)
    assert found.keys() == of.members.keys()
    given_out = [p for partitions in found.values() for p in partitions]
    assert len(given_out) == len(set(given_out))
    for name, partitions in found.items():
        assert {topic for topic, _ in partitions} <= set(of.members[name].topics)
        assert all(holders.get(partition, name) == name for partition in partitions)
    taken = {p for p in everything(of) if any(p[0] in each.topics for each in of.members.values())}
    assert taken - set(given_out) <= holders.keys()


@EXAMPLES
@given(measured(), PERCENT)
def test_the_budget_is_kept(case: tuple[Group, Rates], percent: int) -> None:
    of, rates = case
    found = spread(LoadAwareSticky(percent).assign(measuring(of, rates)))
    moved = sum(len(partitions - found[name]) for name, partitions in owned(of).items())
    assert moved <= ceil(len(everything(of)) * percent / 100)


@EXAMPLES
@given(measured(), PERCENT)
def test_p14_it_comes_to_rest_and_nobody_has_more_to_do_than_somebody_had(
    case: tuple[Group, Rates], percent: int
) -> None:
    of, rates = case
    last = at_rest(of, rates, percent)
    assert set().union(*owned(last).values()) == everything(of)
    assert heaviest(last, rates) <= heaviest(of, rates) * 1.001


@EXAMPLES
@given(groups())
def test_without_rates_it_is_cooperative_sticky(of: Group) -> None:
    assert spread(LoadAwareSticky().assign(of)) == spread(CooperativeSticky().assign(of))


@EXAMPLES
@given(measured())
def test_p9_the_order_of_members_and_topics_changes_nothing(case: tuple[Group, Rates]) -> None:
    of = measuring(*case)
    other = Group(
        dict(sorted(of.members.items(), reverse=True)), dict(sorted(of.topics.items(), reverse=True))
    )
    assert spread(LoadAwareSticky().assign(of)) == spread(LoadAwareSticky().assign(other))


BUSY = {("t", 0): 90.0, ("t", 1): 10.0, ("t", 2): 10.0, ("t", 3): 10.0}
TWO = {"a": member("t", "t-0 t-1", 1), "b": member("t", "t-2 t-3", 1)}


def test_the_move_that_relieves_most_comes_first() -> None:
    now = measuring(group(TWO, t=4), BUSY)
    assert as_text(LoadAwareSticky(25).assign(now)) == {"a": "t-0", "b": "t-2 t-3"}
    last = at_rest(group(TWO, t=4), BUSY, 25)
    assert owned(last) == {"a": parsed("t-0"), "b": parsed("t-1 t-2 t-3")}


def test_with_no_budget_nothing_moves_and_what_is_free_is_given_to_who_has_least_to_do() -> None:
    members = {**TWO, "b": member("t", "t-2", 1)}
    now = measuring(group(members, t=4), BUSY)
    assert as_text(LoadAwareSticky(0).assign(now)) == {"a": "t-0 t-1", "b": "t-2 t-3"}


def test_of_what_is_free_the_heaviest_is_given_first() -> None:
    members = {"a": replace(member("t"), former={"t": {0: 1.0, 1: 1.0, 2: 1.0, 3: 3.0}}), "b": member("t")}
    assert as_text(LoadAwareSticky(0).assign(group(members, t=4))) == {"a": "t-3", "b": "t-0 t-1 t-2"}


def test_a_small_group_is_evened_out_with_a_small_budget_too() -> None:
    members = {"a": member("t", "t-0 t-1", 1), "b": member("t")}
    assert as_text(LoadAwareSticky(1).assign(group(members, t=2))) == {"a": "t-0", "b": ""}


@pytest.mark.parametrize(("more", "stays"), [(HYSTERESIS_PERCENT, True), (4 * HYSTERESIS_PERCENT, False)])
def test_nothing_moves_for_a_little(more: int, stays: bool) -> None:
    numbers = range(100)
    members = {
        "a": Subscriber(["t"], {"t": numbers[:50]}, 1),
        "b": Subscriber(["t"], {"t": numbers[50:]}, 1),
    }
    rates = {("t", n): 1.0 + (n < 50) * more / 100 for n in numbers}
    now = measuring(group(members, t=100), rates)
    assert (spread(LoadAwareSticky().assign(now)) == owned(now)) == stays


def test_what_nobody_measured_counts_as_the_mean() -> None:
    members = {
        "a": replace(member("t", "t-0 t-1", 1), rates={"t": [6.0, 2.0]}),
        "b": replace(member("t", "t-2 t-3", 1), rates={"t": [-1.0]}),
    }
    plan = LoadAwareSticky().assign(group(members, t=4))
    assert [plan[name] is members[name].owned for name in "ab"] == [True, True]


def test_idle_partitions_are_spread_too() -> None:
    members = {"a": Subscriber(["t"], {"t": range(8)}, 1), "b": member("t")}
    last = at_rest(group(members, t=8), dict.fromkeys(everything(group(members, t=8)), 0.0), 100)
    assert sizes_of({name: each.owned for name, each in last.members.items()}) == [4, 4]


@pytest.mark.parametrize("percent", [-1, 101])
def test_a_budget_that_is_none_is_refused(percent: int) -> None:
    with pytest.raises(ValueError, match="0 to 100"):
        LoadAwareSticky(percent)
