"""A hot partition with neighbours: what a rebalance would move is foreseen, and it is ordered if that is worth its pause."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rota_operator.autoscaling.decision import Decision, Reason, decide, judge
from rota_operator.autoscaling.history import INEFFECTIVE_MS, History
from rota_operator.autoscaling.measure import measure
from rota_operator.autoscaling.samples import GroupActivity, PartitionLoad, Sample
from rota_operator.autoscaling.skew import HYSTERESIS, Neighbours, neighbours_of
from rota_operator.overview.view import GroupView, MemberView, PartitionView
from rota_operator.spec.workload import Autoscaling
from rota_sidecar.core.assignors.load_aware import LoadAwareSticky
from rota_sidecar.core.assignors.model import Group, Subscriber, Topic
from tests.operator.autoscaling.histories import CALM, POLL_MS, history_of, samples_of, spec_of

TOPIC = "orders"
BY_LOAD = "load-aware-sticky"


def decided(history: History, spec: Autoscaling) -> Decision:
    decision = decide(history, spec)
    assert decision is not None
    assert judge(decision.inputs, spec) == decision
    return decision


# --------------------------------------------------------------------------------------- what would move


def view_of(owned: Sequence[Sequence[int]], strategy: str = BY_LOAD) -> GroupView:
    """A stable group with the members a, b and so on, which own these partitions."""
    names = [chr(ord("a") + number) for number in range(len(owned))]
    members = tuple(MemberView(name, name, "Stable", 1, ()) for name in names)
    partitions = tuple(
        PartitionView(TOPIC, number, name, lag_records=0)
        for name, numbers in zip(names, owned, strict=True)
        for number in numbers
    )
    return GroupView(
        TOPIC, TOPIC, "Stable", 1, strategy, members, partitions, 0, 0, None, None, None, None, 0, ()
    )


def named(rates: Sequence[float]) -> Mapping[str, float | None]:
    return {f"{TOPIC}-{number}": rate for number, rate in enumerate(rates)}


def neighbours(owned: Sequence[Sequence[int]], rates: Sequence[float]) -> Neighbours:
    """Of partition 0."""
    name = f"{TOPIC}-0"
    return neighbours_of([name], view_of(owned), named(rates))[name]


MOVES = [
    ("all move", [[0, 1, 2], [3], [4]], [9.0, 1.0, 2.0, 1.0, 1.0], 3.0, 3.0),
    ("alone", [[0], [1, 2]], [9.0, 1.0, 1.0], 0.0, 0.0),
    ("one member", [[0, 1]], [9.0, 1.0], 1.0, 0.0),
    ("the others have as much", [[0, 1], [2], [3]], [9.0, 1.0, 9.0, 9.0], 1.0, 0.0),
    ("the receivers fill up", [[0, 1, 2], [3]], [6.0, 3.0, 3.0, 4.0], 6.0, 3.0),
    ("loads differ by less than 5 %", [[0, 1], [2]], [5.0, 0.1, 4.9], 0.1, 0.0),
    ("another member has more", [[0, 1], [2, 3]], [6.0, 1.0, 7.0, 7.0], 1.0, 0.0),
]


@pytest.mark.parametrize(
    ("owned", "rates", "rate", "moving_rate"), [row[1:] for row in MOVES], ids=[row[0] for row in MOVES]
)
def test_neighbours_move_to_members_with_less_load(
    owned: Any,  # noqa: ANN401
    rates: Any,  # noqa: ANN401
    rate: float,
    moving_rate: float,
) -> None:
    assert neighbours(owned, rates) == Neighbours(rate, moving_rate)


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range", ""])
def test_a_strategy_that_looks_at_no_load_moves_nothing(strategy: str) -> None:
    owned = [[0, 1], [2]]
    assert neighbours_of([f"{TOPIC}-0"], view_of(owned, strategy), named([9.0, 1.0, 1.0])) == {}


def test_a_partition_without_an_owner_has_no_neighbours_and_a_member_that_drains_gets_none() -> None:
    view = view_of([[0, 1], [2]])
    hot, receiver = view.partitions[0], view.members[1]
    unowned = replace(view, partitions=(replace(hot, owner=None), *view.partitions[1:]))
    assert neighbours_of([f"{TOPIC}-0"], unowned, named([9.0, 1.0, 1.0])) == {}
    draining = replace(view, members=(view.members[0], replace(receiver, draining=True)))
    found = neighbours_of([f"{TOPIC}-0"], draining, named([9.0, 1.0, 1.0]))
    assert found == {f"{TOPIC}-0": Neighbours(1.0, 0.0)}


@settings(max_examples=200)
@given(some.integers(2, 5), some.lists(some.integers(1, 20), min_size=8, max_size=12))
def test_as_many_neighbours_move_as_is_foreseen(members: int, light: Sequence[int]) -> None:
    """One partition has as much load as all the others together. It may be the one that moves, which comes to the same."""
    rates = [float(sum(light)), *map(float, light)]
    names = [chr(ord("a") + number) for number in range(members)]
    owned = {name: list(range(number, len(rates), members)) for number, name in enumerate(names)}
    found = neighbours(list(owned.values()), rates)
    planned = owned
    # In the first rebalance partitions are revoked, in the second one they are assigned.
    for _ in range(2):
        subscribers = {name: joined(owned[name], planned[name], rates) for name in names}
        plan = LoadAwareSticky().assign(Group(subscribers, {TOPIC: Topic(len(rates))}))
        planned = {name: list(plan[name].get(TOPIC, ())) for name in names}
    (with_hot,) = (mine for mine in planned.values() if 0 in mine)
    left_rate = sum(rates[each] for each in with_hot if each)
    assert found.rate == sum(rates[each] for each in owned["a"] if each)
    assert left_rate <= found.rate - found.moving_rate + HYSTERESIS * sum(rates) / members


def joined(owned: Sequence[int], kept: Sequence[int], rates: Sequence[float]) -> Subscriber:
    """A member that has kept some of its partitions, and revoked the others."""
    former = {each: rates[each] for each in owned if each not in kept}
    mine = [each for each in kept if each in owned]
    return Subscriber(
        (TOPIC,), {TOPIC: mine}, 1, rates={TOPIC: [rates[each] for each in mine]}, former={TOPIC: former}
    )


def test_a_sample_has_the_neighbours_of_its_hottest_partitions() -> None:
    view = view_of([[0, 1], [2]])
    partitions = [replace(each, end=0) for each in view.partitions]
    first = measure(None, replace(view, partitions=tuple(partitions)), {}, 2, 1_000)
    ends = (90, 10, 10)
    later = tuple(replace(each, end=end) for each, end in zip(partitions, ends, strict=True))
    sample = measure(first, replace(view, partitions=later), {}, 2, 11_000).sample
    assert sample.hottest == (
        PartitionLoad("orders-0", 9.0, 0, neighbour_rate=1.0, moving_rate=1.0),
        PartitionLoad("orders-1", 1.0, 0, neighbour_rate=9.0, moving_rate=0.0),
        PartitionLoad("orders-2", 1.0, 0),
    )


# --------------------------------------------------------------------------------------------- decisions


def skewed(moving_rate: float = 2.0, neighbour_rate: float = 2.0, **changed: Any) -> Sample:  # noqa: ANN401
    """2 replicas that process 10 records per second each; one partition has 12, its neighbours have 2, and the others have 3."""
    hot = PartitionLoad("orders-0", 12.0, 0, neighbour_rate, moving_rate)
    others = tuple(PartitionLoad(f"orders-{n}", 5.0 / 11, 0) for n in range(1, 12))
    return replace(CALM, **{"arrival_rate": 17.0, "hottest": (hot, *others), **changed})


def after(count: int = 12, spec: Autoscaling | None = None, **changed: Any) -> Decision:  # noqa: ANN401
    """The decision after samples that are all alike."""
    spec = spec or spec_of()
    return decided(history_of(samples_of(count, skewed(**changed)), spec), spec)


def test_the_group_rebalances_with_the_same_number_of_replicas() -> None:
    found = after()
    assert (found.reason, found.replicas, found.is_rebalance) == (Reason.LOAD_SKEWED, 2, True)
    assert found.inputs.rebalance_gain == 2.0
    assert found.explanation.endswith("but a rebalance moves other partitions away from its owner")


UNKNOWN: dict[str, Any] = {"activity": GroupActivity.UNKNOWN}
KNOWLEDGE = [
    ("few samples", lambda: after(2), Reason.FEW_SAMPLES),
    ("state unknown", lambda: then(**UNKNOWN), Reason.METRICS_UNKNOWN),
    ("arrival unknown", lambda: then(arrival_rate=None), Reason.METRICS_UNKNOWN),
    ("moving rate is NaN", lambda: then(moving_rate=float("nan")), Reason.METRICS_UNKNOWN),
    ("no sidecar reports", lambda: then(silent=2), Reason.METRICS_UNKNOWN),
    ("rebalancing", lambda: then(activity=GroupActivity.REBALANCING), Reason.REBALANCING),
    ("a newer generation", lambda: then(generation=2), Reason.REBALANCING),
    ("suspended", lambda: then(is_suspended=True), Reason.SUSPENDED),
    ("partial", lambda: after(is_partial=True), Reason.HOT_PARTITIONS),
    ("pods have not started", lambda: after(members=1), Reason.HOT_PARTITIONS),
    ("members unknown", lambda: after(members=None), Reason.HOT_PARTITIONS),
    ("rolled out", lambda: after(is_rolling_out=True), Reason.HOT_PARTITIONS),
    ("never busy", lambda: after(done=0, busy_seconds=0.0), Reason.SERVICE_RATE_UNKNOWN),
    ("nothing moves", lambda: after(moving_rate=0.0), Reason.HOT_PARTITIONS),
    ("in one sample only", lambda: then(moving_rate=2.0, before=0.0), Reason.HOT_PARTITIONS),
    ("more load than the replicas process", lambda: after(arrival_rate=60.0), Reason.LOAD_ABOVE_TARGET),
    # 0.1 records per second for 600 s, against 2 replicas for 3 s
    ("the pause costs more", lambda: after(moving_rate=0.1, pause_ms=3_000), Reason.HOT_PARTITIONS),
    ("the pause costs less", lambda: after(moving_rate=0.1, pause_ms=2_900), Reason.LOAD_SKEWED),
]


def then(before: float = 2.0, **changed: Any) -> Decision:  # noqa: ANN401
    """The decision after a time with this moving rate, and one sample."""
    spec = spec_of()
    last = replace(skewed(**changed), at_ms=13 * POLL_MS)
    return decided(history_of([*samples_of(12, skewed(before)), last], spec), spec)


@pytest.mark.parametrize(
    ("decide_it", "reason"), [row[1:] for row in KNOWLEDGE], ids=[row[0] for row in KNOWLEDGE]
)
def test_each_state_of_knowledge_has_its_decision(decide_it: Any, reason: Reason) -> None:  # noqa: ANN401
    found = decide_it()
    assert found.reason == reason, found.explanation
    assert found.is_rebalance == (reason is Reason.LOAD_SKEWED)


def test_an_owner_that_processes_all_its_partitions_gains_nothing() -> None:
    """At a rate of 7.5 the partition is above the target utilization of 70 %, and 1.5 beside it are not too many."""
    calm = PartitionLoad("orders-0", 7.5, 0, neighbour_rate=1.5, moving_rate=1.5)
    found = after(hottest=(calm, *skewed().hottest[1:]), arrival_rate=12.0)
    assert (found.reason, found.inputs.rebalance_gain) == (Reason.HOT_PARTITIONS, 0.0)


def test_fewer_replicas_come_before_a_rebalance_which_their_leaving_makes_needless() -> None:
    found = after(replicas=6, members=6)
    assert (found.replicas, found.reason) == (3, Reason.LOAD_BELOW_TARGET)
    added = history_of(samples_of(12, skewed(replicas=6, members=6)), spec_of()).with_change(
        12 * POLL_MS, 2, 6
    )
    stay = history_of(samples_of(8, skewed(replicas=6, members=6), 13 * POLL_MS), spec_of(), added)
    assert decided(stay, spec_of()).reason == Reason.LOAD_SKEWED, "while added replicas stay"


# ------------------------------------------------------------------------------------------ after an order


def ordered(spec: Autoscaling) -> History:
    """A group that was ordered to rebalance after its twelfth sample."""
    history = history_of(samples_of(12, skewed()), spec)
    return history.with_rebalance(12 * POLL_MS, decided(history, spec).inputs.hot_partitions)


def test_a_rebalance_counts_as_a_change() -> None:
    spec = spec_of(min_change_interval_seconds=120)
    moved = skewed(moving_rate=0.0, neighbour_rate=0.0, generation=2, arrival_rate=60.0)
    found = []
    history = ordered(spec)
    for sample in samples_of(12, moved, 13 * POLL_MS):
        history = history.with_sample(sample, spec)
        found.append(decided(history, spec))
    assert {each.reason for each in found[4:11]} == {Reason.CHANGE_INTERVAL}
    assert (found[-1].reason, found[-1].inputs.since_change_ms) == (Reason.LOAD_ABOVE_TARGET, 120_000)
    assert found[-1].inputs.since_growth_ms is None


def test_it_is_not_repeated_before_its_effect_is_known() -> None:
    spec = spec_of(min_change_interval_seconds=0)
    history = history_of(samples_of(3, skewed(), 13 * POLL_MS), spec, ordered(spec))
    found = decided(history, spec)
    assert (found.reason, found.inputs.is_rebalance_pending) == (Reason.HOT_PARTITIONS, True)


def test_one_that_moved_nothing_is_not_repeated_for_half_an_hour() -> None:
    spec = spec_of()
    history = history_of(samples_of(4, skewed(), 13 * POLL_MS), spec, ordered(spec))
    assert [(each.before, each.after) for each in history.ineffective] == [(2, 2)]
    found = decided(history, spec)
    assert (found.reason, found.inputs.is_rebalance_ineffective) == (Reason.HOT_PARTITIONS, True)
    assert found.explanation.endswith("and a rebalance has moved nothing")
    assert found.inputs.ineffective_replicas is None, "it says nothing about the number"
    count = INEFFECTIVE_MS // POLL_MS
    later = history_of(samples_of(count, skewed(), 17 * POLL_MS), spec, history)
    assert decided(later, spec).reason == Reason.LOAD_SKEWED


def test_one_that_moved_partitions_may_be_repeated_once_others_are_in_the_way() -> None:
    spec = spec_of()
    alone = skewed(moving_rate=0.0, neighbour_rate=0.0, generation=2)
    history = history_of(samples_of(8, alone, 13 * POLL_MS), spec, ordered(spec))
    assert (history.ineffective, decided(history, spec).reason) == ((), Reason.HOT_PARTITIONS)
    crowded = samples_of(2, skewed(generation=2), 21 * POLL_MS)
    assert decided(history_of(crowded, spec, history), spec).reason == Reason.LOAD_SKEWED


def test_a_clock_that_is_set_back_does_not_bar_changes() -> None:
    spec = spec_of()
    history = history_of(samples_of(1, skewed()), spec, ordered(spec))
    assert history.changed_ms == POLL_MS
