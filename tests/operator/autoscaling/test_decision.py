"""The autoscaler's decision for each state of knowledge, and that decisions can be made again from what they wrote."""

from dataclasses import replace
from typing import Any

import pytest

from rota_operator.autoscaling.decision import Decision, Reason, decide, judge, needed_replicas
from rota_operator.autoscaling.history import SAMPLES_MAX, History
from rota_operator.autoscaling.samples import GroupActivity, PartitionLoad, Sample
from rota_operator.spec.workload import Autoscaling
from tests.operator.autoscaling.histories import CALM, POLL_MS, history_of, samples_of, spec_of

NAN, INFINITE = float("nan"), float("inf")
UNKNOWN: dict[str, Any] = {"activity": GroupActivity.UNKNOWN}


def decided(history: History, spec: Autoscaling) -> Decision:
    decision = decide(history, spec)
    assert decision is not None
    assert judge(decision.inputs, spec) == decision
    return decision


def after(count: int = 12, spec: Autoscaling | None = None, **changed: Any) -> Decision:  # noqa: ANN401
    """The decision after samples that are all alike."""
    spec = spec or spec_of()
    return decided(history_of(samples_of(count, **changed), spec), spec)


def then(*last: dict[str, Any], spec: Autoscaling | None = None) -> Decision:
    """The decision after a calm time and these samples."""
    spec = spec or spec_of()
    samples = samples_of(12)
    for each in last:
        samples.append(replace(CALM, **{"at_ms": samples[-1].at_ms + POLL_MS, **each}))
    return decided(history_of(samples, spec), spec)


def test_there_is_no_decision_without_a_sample() -> None:
    assert decide(History(), spec_of()) is None


def test_load_is_divided_by_what_a_busy_replica_processes_at_the_target() -> None:
    # (40 + 600 / 600) / (10 * 0.7) = 5.9
    found = after(arrival_rate=40.0, backlog=600)
    assert (found.replicas, found.reason) == (6, Reason.LOAD_ABOVE_TARGET)
    assert "40.0 records/s arrive, 600 are uncommitted, a busy replica processes 10.0/s" in found.explanation


def test_the_replicas_that_the_load_asks_for_are_not_bounded() -> None:
    bounded = spec_of(max_replica_count=3)
    found = after(spec=bounded, arrival_rate=900.0)
    assert (found.replicas, needed_replicas(found.inputs, bounded)) == (3, 129)
    for unknown in (after(2), after(done=0, busy_seconds=0.0), after(done=1, busy_seconds=1e300)):
        assert needed_replicas(unknown.inputs, bounded) is None


def test_a_backlog_alone_is_a_reason_to_grow() -> None:
    assert after(backlog=12_000).replicas == 5


def test_an_old_record_is_a_reason_to_grow() -> None:
    # 10 + 900 / 60 instead of 900 / 600
    found = after(backlog=900, lag_seconds=90.0)
    assert (found.replicas, found.reason) == (4, Reason.LAG_ABOVE_TARGET)
    assert after(backlog=900, lag_seconds=60.0).replicas == 2


KNOWLEDGE = [
    ("few samples", lambda: after(2, arrival_rate=90.0), 2, Reason.FEW_SAMPLES),
    ("state unknown", lambda: then(UNKNOWN), 2, Reason.METRICS_UNKNOWN),
    ("unknown for long", lambda: then(*[UNKNOWN] * 9), 2, Reason.METRICS_UNKNOWN),
    ("arrival unknown", lambda: then({"arrival_rate": None}), 2, Reason.METRICS_UNKNOWN),
    ("backlog unknown", lambda: then({"backlog": None}), 2, Reason.METRICS_UNKNOWN),
    ("partitions unknown", lambda: then({"partitions": None}), 2, Reason.METRICS_UNKNOWN),
    ("arrival is NaN", lambda: then({"arrival_rate": NAN}), 2, Reason.METRICS_UNKNOWN),
    ("arrival is infinite", lambda: then({"arrival_rate": INFINITE}), 2, Reason.METRICS_UNKNOWN),
    ("arrival is negative", lambda: then({"arrival_rate": -1.0}), 2, Reason.METRICS_UNKNOWN),
    ("backlog is negative", lambda: then({"backlog": -1}), 2, Reason.METRICS_UNKNOWN),
    ("lag is NaN", lambda: then({"lag_seconds": NAN}), 2, Reason.METRICS_UNKNOWN),
    ("busy time is NaN", lambda: then({"busy_seconds": NAN}), 2, Reason.METRICS_UNKNOWN),
    (
        "a partition's rate is NaN",
        lambda: then({"hottest": (PartitionLoad("orders-0", NAN, 0),)}),
        2,
        Reason.METRICS_UNKNOWN,
    ),
    ("no sidecar reports", lambda: then({"silent": 2}), 2, Reason.METRICS_UNKNOWN),
    ("an older generation", lambda: then({"generation": 0, "arrival_rate": 90.0}), 2, Reason.METRICS_UNKNOWN),
    ("a newer generation", lambda: then({"generation": 2, "arrival_rate": 90.0}), 2, Reason.REBALANCING),
    ("rebalancing", lambda: then({"activity": GroupActivity.REBALANCING}), 2, Reason.REBALANCING),
    ("just rebalanced", lambda: then({"rebalanced_ms": 12 * POLL_MS + 8_000}), 2, Reason.REBALANCING),
    ("suspended", lambda: then({"is_suspended": True, "backlog": 10**6}), 2, Reason.SUSPENDED),
    ("0 partitions", lambda: after(partitions=0, arrival_rate=None, backlog=None), 2, Reason.NO_PARTITIONS),
    ("never busy", lambda: after(done=0, busy_seconds=0.0), 2, Reason.SERVICE_RATE_UNKNOWN),
    (
        "never busy, no load",
        lambda: after(done=0, busy_seconds=0.0, arrival_rate=0.0),
        1,
        Reason.LOAD_BELOW_TARGET,
    ),
    ("partial, growing", lambda: after(is_partial=True, arrival_rate=40.0), 6, Reason.LOAD_ABOVE_TARGET),
    ("partial, shrinking", lambda: after(is_partial=True, arrival_rate=1.0), 2, Reason.METRICS_UNKNOWN),
    ("pods never start", lambda: after(arrival_rate=90.0, members=1), 2, Reason.REPLICAS_PENDING),
    ("pods never start, less load", lambda: after(arrival_rate=1.0, members=1), 1, Reason.LOAD_BELOW_TARGET),
    ("rolled out, less load", lambda: after(arrival_rate=1.0, is_rolling_out=True), 2, Reason.ROLLOUT),
    (
        "rolled out, more load",
        lambda: after(arrival_rate=40.0, is_rolling_out=True),
        6,
        Reason.LOAD_ABOVE_TARGET,
    ),
    ("more than the partitions", lambda: after(arrival_rate=900.0), 12, Reason.LOAD_ABOVE_TARGET),
    ("observed for a short time", lambda: after(4, arrival_rate=1.0), 2, Reason.STABILIZING),
    ("a rate near 0", lambda: after(done=1, busy_seconds=1e9), 12, Reason.LOAD_ABOVE_TARGET),
]


@pytest.mark.parametrize(
    ("decide_it", "replicas", "reason"), [row[1:] for row in KNOWLEDGE], ids=[row[0] for row in KNOWLEDGE]
)
def test_each_state_of_knowledge_has_its_decision(decide_it: Any, replicas: int, reason: Reason) -> None:  # noqa: ANN401
    found = decide_it()
    assert (found.replicas, found.reason) == (replicas, reason), found.explanation


def test_a_sample_that_comes_twice_counts_once() -> None:
    spec = spec_of()
    sample = samples_of(1)[0]
    history = history_of([sample, sample, replace(sample, arrival_rate=90.0)], spec)
    assert [each.sample for each in history.observations] == [sample]


def test_a_sample_of_an_older_generation_is_followed_by_usual_decisions() -> None:
    found = then({"generation": 0}, *[{"generation": 0, "arrival_rate": 40.0}] * 4)
    assert (found.replicas, found.reason) == (6, Reason.LOAD_ABOVE_TARGET)


def test_a_clock_that_is_set_back_begins_anew_and_does_not_stop_the_autoscaler() -> None:
    spec = spec_of()
    history = history_of(samples_of(12), spec).with_change(12 * POLL_MS, 1, 2)
    history = history_of(samples_of(1), spec, history)
    assert (history.since_ms, history.change and history.change.at_ms) == (POLL_MS, POLL_MS)
    assert decided(history, spec).reason is Reason.FEW_SAMPLES
    history = history_of(samples_of(8, start_ms=2 * POLL_MS, arrival_rate=40.0), spec, history)
    assert decided(history, spec).replicas == 6


def test_a_clock_that_jumps_ahead_makes_earlier_samples_outdated() -> None:
    spec = spec_of()
    history = history_of(samples_of(12, arrival_rate=90.0), spec)
    history = history_of(samples_of(1, start_ms=10**9), spec, history)
    assert len(history.observations) == 1
    assert decided(history, spec).reason is Reason.FEW_SAMPLES


def test_the_history_is_bounded() -> None:
    spec = spec_of()
    history = history_of(samples_of(SAMPLES_MAX + 50), spec)
    for number in range(50):
        history = history.with_change(number, 1, 2)
    assert len(history.observations) == SAMPLES_MAX


BOUNDS = [
    ("minReplicaCount above the partitions", {"min_replica_count": 20}, {"arrival_rate": 0.0}, 12),
    ("maxReplicaCount", {"max_replica_count": 4}, {"arrival_rate": 90.0}, 4),
    ("minReplicaCount", {"min_replica_count": 3}, {"arrival_rate": 0.0}, 3),
    ("0 replicas", {"min_replica_count": 0}, {"arrival_rate": 0.0}, 0),
    ("targetUtilization 1", {"target_utilization": 1.0}, {"arrival_rate": 40.0}, 4),
    ("balanced", {"partition_alignment": "balanced"}, {"arrival_rate": 38.0}, 6),
    ("balanced, between", {"partition_alignment": "balanced"}, {"arrival_rate": 52.0}, 6),
    ("balanced, too few", {"partition_alignment": "balanced"}, {"arrival_rate": 56.0}, 12),
    (
        "balanced, up to the maximum",
        {"partition_alignment": "balanced", "max_replica_count": 8},
        {"arrival_rate": 56.0},
        6,
    ),
    ("even", {"partition_alignment": "even"}, {"arrival_rate": 32.0}, 6),
    ("even, none above", {"partition_alignment": "even", "max_replica_count": 5}, {"arrival_rate": 32.0}, 4),
    ("above the bounds", {"max_replica_count": 1}, {"arrival_rate": 10.0}, 1),
]


@pytest.mark.parametrize(
    ("fields", "changed", "replicas"), [row[1:] for row in BOUNDS], ids=[row[0] for row in BOUNDS]
)
def test_the_number_is_bounded_and_aligned(fields: Any, changed: Any, replicas: int) -> None:  # noqa: ANN401
    assert after(spec=spec_of(**fields), **changed).replicas == replicas


def test_too_many_replicas_are_reduced_to_the_maximum_although_some_partitions_are_unknown() -> None:
    found = after(spec=spec_of(max_replica_count=3), replicas=9, members=9, is_partial=True)
    assert (found.replicas, found.reason) == (3, Reason.OUT_OF_BOUNDS)


FALLBACKS = [(2, 5, 2), (3, 5, 5), (3, None, 2), (3, 99, 12), (3, 0, 1)]


@pytest.mark.parametrize(("bad", "fallback", "replicas"), FALLBACKS)
def test_the_fallback_applies_after_the_threshold_within_the_bounds(
    bad: int, fallback: int | None, replicas: int
) -> None:
    spec = spec_of(fallback={"replicas": fallback}, max_replica_count=24)
    assert then(*[{"backlog": None}] * bad, spec=spec).replicas == replicas


def test_without_replicas_a_backlog_starts_one() -> None:
    empty: dict[str, Any] = {
        "activity": GroupActivity.EMPTY, "replicas": 0, "members": 0, "done": 0, "busy_seconds": 0.0, "arrival_rate": 0.0
    }  # fmt: skip
    spec = spec_of(min_replica_count=0)
    assert after(spec=spec, backlog=3, **empty).replicas == 1
    assert after(spec=spec, backlog=0, **empty).replicas == 0
    assert after(spec=spec, backlog=None, **empty).reason is Reason.METRICS_UNKNOWN


def test_there_is_one_change_for_each_interval() -> None:
    spec = spec_of()
    history = history_of(samples_of(12, arrival_rate=40.0), spec).with_change(12 * POLL_MS, 2, 6)
    loaded = samples_of(
        10, start_ms=13 * POLL_MS, arrival_rate=60.0, replicas=6, members=6, done=600, busy_seconds=60.0
    )
    for sample in loaded:
        history = history.with_sample(sample, spec)
        found = decided(history, spec)
        if sample is loaded[0]:
            assert (found.replicas, found.reason) == (6, Reason.STABILIZING), "in one sample only"
            continue
        is_due = sample.at_ms - 12 * POLL_MS >= 60_000
        assert (found.replicas, found.reason) == (
            (9, Reason.LOAD_ABOVE_TARGET) if is_due else (6, Reason.CHANGE_INTERVAL)
        )


def test_a_load_that_rises_is_waited_for_so_that_one_change_is_enough() -> None:
    """The sample in which the load rises holds a part of it: growth by that would be too small, and bar the next for an interval."""
    spec = spec_of()
    rising = [10.0, 10.0, 10.0, 22.0, 40.0, 40.0]
    samples = [replace(CALM, at_ms=n * POLL_MS, arrival_rate=rate) for n, rate in enumerate(rising)]
    found = [decided(history_of(samples[: n + 1], spec), spec) for n in range(2, 6)]
    assert [each.replicas for each in found] == [2, 2, 2, 6]
    assert {each.reason for each in found[1:3]} == {Reason.STABILIZING}
    late = [replace(each, lag_seconds=31.0) for each in samples]
    assert decided(history_of(late[:5], spec), spec).replicas == 6, (
        "not if records wait for half of lagSecondsTarget"
    )
    most = spec_of(max_replica_count=3)
    assert decided(history_of(samples[:5], most), most).replicas == 3, "nor if it would be the maximum anyway"


def test_a_load_of_one_sample_changes_nothing() -> None:
    assert [then({"arrival_rate": 90.0}).replicas, then({"arrival_rate": 90.0}, {}).replicas] == [2, 2]
    assert then({"arrival_rate": 1.0}).replicas == 2
    spec = spec_of()
    spike = samples_of(7) + samples_of(1, start_ms=8 * POLL_MS, arrival_rate=90.0)
    calm = samples_of(4, start_ms=9 * POLL_MS, arrival_rate=1.0)
    later = samples_of(3, start_ms=13 * POLL_MS, arrival_rate=1.0)
    assert decided(history_of([*spike, *calm, *later], spec), spec).replicas == 1, "nor does it bar a change"


def test_replicas_are_removed_only_if_the_others_have_a_margin() -> None:
    """Else the load's next variation would bring them back."""
    assert after(replicas=3, members=3, arrival_rate=13.9).replicas == 3
    assert after(replicas=3, members=3, arrival_rate=11.6).replicas == 2


def test_the_number_is_not_reduced_below_the_peak_of_the_interval() -> None:
    spec = spec_of()
    busy = samples_of(6, arrival_rate=10.0)
    calm = samples_of(8, start_ms=7 * POLL_MS, arrival_rate=1.0)
    found = [decided(history_of([*busy, *calm[: n + 1]], spec), spec) for n in range(8)]
    assert [each.replicas for each in found] == [2] * 5 + [1] * 3
    assert found[2].reason is Reason.STABILIZING


def test_growth_wins_back_more_than_the_pause_that_it_causes() -> None:
    spec = spec_of(catch_up_seconds=60)
    assert after(spec=spec, arrival_rate=16.0, pause_ms=40_000).reason is Reason.PAUSE_ABOVE_GAIN
    assert after(spec=spec, arrival_rate=16.0, pause_ms=20_000).replicas == 3


def ineffective_history(spec: Autoscaling, done_after: int) -> History:
    """2 replicas grow to 6, which process as many records as before, or more."""
    overloaded: dict[str, Any] = {"arrival_rate": 40.0, "done": 200, "busy_seconds": 20.0, "backlog": 500}
    history = history_of(samples_of(12, **overloaded), spec).with_change(12 * POLL_MS, 2, 6)
    grown = overloaded | {
        "replicas": 6, "members": 6, "done": done_after, "busy_seconds": 60.0, "backlog": 5_000, "generation": 2
    }  # fmt: skip
    return history_of(samples_of(9, start_ms=13 * POLL_MS, **grown), spec, history)


def test_a_change_that_did_not_help_is_noted_and_not_repeated() -> None:
    spec = spec_of()
    history = ineffective_history(spec, done_after=200)
    assert [(each.before, each.after) for each in history.ineffective] == [(2, 6)]
    found = decided(history, spec)
    assert (found.replicas, found.reason) == (6, Reason.INEFFECTIVE_CHANGE)


def test_a_change_that_helped_is_not_noted() -> None:
    assert ineffective_history(spec_of(), done_after=600).ineffective == ()


def test_growth_for_a_load_that_rises_slowly_is_not_noted_as_ineffective() -> None:
    """Replicas process all that arrives before and after, and a few records are always uncommitted."""
    spec = spec_of()
    history = history_of(samples_of(12, arrival_rate=15.0, done=150, busy_seconds=15.0, backlog=30), spec)
    history = history.with_change(12 * POLL_MS, 2, 3)
    grown: dict[str, Any] = {"replicas": 3, "members": 3, "generation": 2, "backlog": 32}
    calm = samples_of(9, start_ms=13 * POLL_MS, arrival_rate=15.5, done=155, busy_seconds=15.5, **grown)
    assert history_of(calm, spec, history).ineffective == ()


def test_a_number_outside_of_the_bounds_is_changed_although_no_replica_was_busy_yet() -> None:
    idle: dict[str, Any] = {"done": 0, "busy_seconds": 0.0, "backlog": 1}
    assert (after(**idle).replicas, after(**idle).reason) == (2, Reason.SERVICE_RATE_UNKNOWN)
    for bounds, replicas in (({"min_replica_count": 3}, 3), ({"max_replica_count": 1}, 1)):
        found = after(spec=spec_of(partition_alignment="off", **bounds), **idle)
        assert (found.replicas, found.reason) == (replicas, Reason.OUT_OF_BOUNDS)


def hot(rate: float) -> Sample:
    """One partition has almost all of the load."""
    loads = tuple(PartitionLoad(f"orders-{n}", rate if n == 0 else 0.1, 0) for n in range(12))
    return replace(CALM, arrival_rate=rate + 1.1, hottest=loads)


def test_a_hot_partition_is_named_and_adds_no_replicas() -> None:
    spec = spec_of()
    found = decided(history_of(samples_of(12, hot(80.0)), spec), spec)
    assert (found.replicas, found.reason) == (2, Reason.HOT_PARTITIONS)
    assert "orders-0: more load than one replica processes" in found.explanation


def test_load_of_all_partitions_is_no_skew() -> None:
    loads = tuple(PartitionLoad(f"orders-{n}", 9.0, 0) for n in range(12))
    found = after(arrival_rate=108.0, hottest=loads)
    assert (found.replicas, found.inputs.hot_partitions) == (12, ())


def test_a_rate_limit_bounds_what_a_replica_processes() -> None:
    assert after(service_rate_max=5.0).replicas == 3
    assert after(service_rate_max=NAN).replicas == 2
