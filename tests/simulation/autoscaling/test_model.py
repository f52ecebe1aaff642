"""The model of a scaled group: nothing is lost, a run depends on its seed alone, and both autoscalers answer to a load."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.simulation.autoscaling.figures import COMMIT_S, IN_CLUSTER, RECORDS_PER_S, REPORT_S
from tests.simulation.autoscaling.group import ModelGroup, PodState
from tests.simulation.autoscaling.keda import KafkaTrigger
from tests.simulation.autoscaling.race import ROTA, ROTA_BY_DEFAULT, THRESHOLDS, Result, scores_of
from tests.simulation.autoscaling.run import Score, flaps_of, run
from tests.simulation.autoscaling.scalers import view_of
from tests.simulation.autoscaling.shares import fair_shares
from tests.simulation.autoscaling.traces import (
    DEFAULT_STRATEGY,
    MINUTE,
    PARTITIONS,
    STEP_S,
    TRACES,
    Trace,
    arrivals_of,
)

STEP = TRACES[0]
# The first half hour of the trace, and 20 minutes of the higher load.
SHORT = replace(STEP, name="short step", duration_s=55 * MINUTE)


def group_of(trace: Trace = STEP, replicas: int = 3) -> ModelGroup:
    return ModelGroup(trace, replicas, random.Random(1))


def even(rate: float) -> list[float]:
    """Records of a step, the same number in each partition."""
    return [rate * STEP_S / PARTITIONS] * PARTITIONS


def test_each_partition_has_an_owner_and_members_are_balanced() -> None:
    group = group_of(replicas=5)
    assert sorted(len(each.partitions) for each in group.members()) == [2, 2, 2, 3, 3]
    assert all(group.owner(each) is not None for each in range(PARTITIONS))


def test_a_group_that_keeps_pace_has_no_old_records_and_commits_behind_them() -> None:
    group = group_of()
    for _ in range(60):
        group.step(even(6.0))
    assert group.backlog() == pytest.approx(0)
    assert group.oldest_s() == 0
    # Each member has committed between 0 s and 5 s ago.
    assert 0 < sum(group.lags()) < 6.0 * STEP_S


def test_a_group_that_does_not_keep_pace_has_records_as_old_as_its_backlog() -> None:
    group = group_of(replicas=1)
    for _ in range(60):
        group.step(even(2 * RECORDS_PER_S))
    done = sum(group.processed)
    assert done == pytest.approx(RECORDS_PER_S * 300, rel=0.11)
    assert group.oldest_s() == pytest.approx(300 - done / (2 * RECORDS_PER_S), rel=0.05)


def test_a_pod_that_joins_takes_partitions_in_one_rebalance_and_they_pause() -> None:
    group = group_of()
    group.add_pods(1)
    while not group.rebalances:
        group.step(even(6.0))
    rebalance = group.rebalances[0]
    assert IN_CLUSTER.pause_s.low <= rebalance.pause_s <= IN_CLUSTER.pause_s.high
    assert [len(each.partitions) for each in group.members()] == [3, 3, 3, 3]
    assert group.members()[-1].state is PodState.RUNNING


def test_a_pod_that_leaves_is_counted_until_then_and_its_partitions_move() -> None:
    group = group_of()
    group.remove(group.members()[0], group.now_s + 7.0)
    group.step(even(6.0))
    assert (len(group.pods), group.backlog() > 0) == (3, True)
    group.step(even(6.0))
    assert [len(each.partitions) for each in group.members()] == [6, 6]
    assert group.pod_seconds == 3 * STEP_S + 2 * STEP_S


def test_an_ordered_rebalance_moves_neighbours_away_from_a_hot_partition_if_the_strategy_looks_at_loads() -> (
    None
):
    arrivals = even(6.0)
    arrivals[0] += 8.0 * STEP_S
    for strategy, left in (("load-aware-sticky", [0]), (DEFAULT_STRATEGY, [0, 3, 6, 9])):
        group = ModelGroup(STEP, 3, random.Random(1), strategy)
        for _ in range(3):
            group.step(arrivals)
        hot = group.owner(0)
        group.order_rebalance()
        group.step(arrivals)
        (rebalance,) = group.rebalances
        assert IN_CLUSTER.pause_s.low <= rebalance.pause_s <= IN_CLUSTER.pause_s.high
        assert hot is not None
        assert (group.owner(0), sorted(hot.partitions)) == (hot, left)


def test_what_a_view_shows_is_as_old_as_its_last_look() -> None:
    group = group_of()
    for _ in range(4):
        group.step(even(6.0))
    now, then = view_of(group), view_of(group, 2.0)
    # A partition gets a record each 2 s.
    assert [each.end for each in now.partitions] == [10] * PARTITIONS
    assert [each.end for each in then.partitions] == [9] * PARTITIONS
    assert all((each.committed or 0) <= (each.end or 0) for each in then.partitions)


def test_the_lag_in_a_view_is_that_of_the_first_record_without_a_commit() -> None:
    """Records that are processed at once wait for the commit of their owner: between 0 s and COMMIT_S, and for the look."""
    group = group_of()
    for _ in range(60):
        group.step(even(6.0))
    assert group.oldest_s() == 0
    lags = [each.lag_seconds for each in view_of(group, 1.0).partitions if each.lag_seconds is not None]
    assert len(lags) == PARTITIONS
    assert 0 < max(lags) <= 2 * COMMIT_S


def test_the_lag_in_a_view_of_a_backlog_is_its_age() -> None:
    group = group_of(replicas=1)
    for _ in range(60):
        group.step(even(2 * RECORDS_PER_S))
    seen_s = max(each.lag_seconds or 0.0 for each in view_of(group, 1.0).partitions)
    assert group.oldest_s() > 100
    assert seen_s == pytest.approx(group.oldest_s(), abs=2 * COMMIT_S)


def test_counters_in_reports_are_at_most_a_report_old() -> None:
    group = group_of()
    for _ in range(10):
        group.step(even(6.0))
    for pod in group.members():
        done, busy_s = pod.counters(REPORT_S, STEP_S)
        assert pod.done - pod.rate * REPORT_S <= done <= pod.done
        assert pod.busy_s - REPORT_S <= busy_s <= pod.busy_s


def test_a_downstream_system_at_its_limit_keeps_all_pods_busy() -> None:
    group = group_of(replace(STEP, downstream_rate=3.0))
    for _ in range(60):
        group.step(even(6.0))
    assert sum(each.done for each in group.members()) == pytest.approx(3.0 * 300)
    assert all(each.busy_s == pytest.approx(300, rel=0.05) for each in group.members())


def test_a_capacity_is_divided_fairly() -> None:
    assert fair_shares([1, 5, 9], 9) == [1, 4, 4]
    assert fair_shares([1, 2], 9) == [1, 2]


@pytest.mark.parametrize(
    ("changes", "flaps"),
    [
        ([(0, 2), (600, -1)], 1),
        ([(0, 2), (1_000, -1)], 0),
        ([(0, 2), (60, 3)], 0),
        ([(0, -1), (60, 1), (120, -1)], 2),
    ],
)
def test_a_flap_takes_a_change_back_soon(changes: list[tuple[float, int]], flaps: int) -> None:
    assert flaps_of(changes) == flaps


@pytest.mark.parametrize("trigger", [None, KafkaTrigger(20)], ids=["rota", "keda"])
def test_a_load_that_rises_is_followed_and_a_seed_tells_all(trigger: KafkaTrigger | None) -> None:
    arrivals = arrivals_of(SHORT, 3)
    assert arrivals == arrivals_of(SHORT, 3) != arrivals_of(SHORT, 4)
    score, points = run(SHORT, arrivals, 3, trigger)
    assert run(SHORT, arrivals, 3, trigger) == (score, points)
    assert points[0].replicas < points[-1].replicas
    assert (score.late_s, score.changes_in_gaps) == (0, 0)
    assert score.rebalances > 0


def test_rota_changes_nothing_while_nothing_is_known() -> None:
    trace = next(each for each in TRACES if each.gaps_s)
    begin_s, end_s = trace.gaps_s[0]
    arrivals = arrivals_of(trace, 1)[: int(end_s / STEP_S) + 60]
    score, points = run(trace, arrivals, 1, None)
    within = {each.replicas for each in points if begin_s < each.at_s <= end_s}
    assert (len(within), score.changes_in_gaps) == (1, 0)
    assert points[-1].replicas > within.pop(), "the load has risen meanwhile"


def test_rota_rebalances_less_often_than_keda_at_any_threshold() -> None:
    scores = scores_of(SHORT, 1)
    assert set(scores) == {ROTA, *THRESHOLDS}
    assert all(scores[ROTA].rebalances <= scores[each].rebalances for each in THRESHOLDS)


def test_rota_moves_the_neighbours_of_a_hot_partition_and_a_row_has_the_default_strategy() -> None:
    """Records of the hot partition are late in any case; those of its neighbours, and what they cost it, are not."""
    trace = next(each for each in TRACES if each.strategy != DEFAULT_STRATEGY)
    scores = scores_of(replace(trace, duration_s=80 * MINUTE), 1)
    assert set(scores) == {ROTA, ROTA_BY_DEFAULT, *THRESHOLDS}
    assert scores[ROTA].late_s <= scores[ROTA_BY_DEFAULT].late_s
    assert scores[ROTA].added <= 1
    assert scores[ROTA].rebalances > scores[ROTA_BY_DEFAULT].rebalances


def scored(**scores: Score) -> Result:
    """A result with these scores of KEDA, by threshold."""
    late = Score(late_s=1_000)
    given: dict[int | None, Score] = dict.fromkeys(THRESHOLDS, late)
    given |= {int(key.removeprefix("at_")): score for key, score in scores.items()}
    return Result(STEP, 1, given)


@pytest.mark.parametrize(
    ("choice", "threshold"), [(Result.most_stable, 10), (Result.cheapest, 20)], ids=["stable", "cheap"]
)
def test_the_best_threshold_is_one_of_those_with_the_shortest_lateness(
    choice: Callable[[Result], int], threshold: int
) -> None:
    result = scored(
        at_10=Score(late_s=5, rebalances=3, replica_hours=9),
        at_20=Score(late_s=0, rebalances=9, replica_hours=5),
        at_50=Score(late_s=60, rebalances=1, replica_hours=1),
    )
    assert choice(result) == threshold
