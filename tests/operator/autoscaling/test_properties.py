"""Rules that hold for every history: bounds, alignment, monotony, no change on unknown, one change for each interval."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rota_operator.autoscaling.decision import Decision, decide, judge
from rota_operator.autoscaling.history import History
from rota_operator.autoscaling.replica_counts import bounds_of, is_aligned
from rota_operator.autoscaling.samples import GroupActivity, PartitionLoad, Sample
from rota_operator.spec.workload import Autoscaling
from tests.operator.autoscaling.histories import history_of, spec_of

pytestmark = pytest.mark.soak("autoscaling")

# Fifty rounds of the soak are 10,000 histories for each rule.
EXAMPLES = settings(max_examples=200)
RATES = some.one_of(
    some.none(), some.floats(0, 1e6), some.sampled_from([float("nan"), -1.0, float("inf"), 0.0])
)
COUNTS = some.one_of(some.none(), some.integers(0, 10**9), some.just(-1))
LOADS = some.builds(
    PartitionLoad,
    some.sampled_from(["a-0", "a-1", "b-0"]),
    some.floats(0, 1e5),
    some.integers(0, 10**6),
    some.floats(0, 1e5),
    some.sampled_from([0.0, 1.0, 1e4]),
)


def specs() -> some.SearchStrategy[Autoscaling]:
    return some.builds(
        lambda low, more, fallback, **fields: spec_of(
            min_replica_count=low, max_replica_count=max(1, low + more), fallback=fallback, **fields
        ),
        some.integers(0, 30),
        some.integers(0, 30),
        some.fixed_dictionaries({"failure_threshold": some.integers(1, 5), "replicas": some.none()}),
        min_change_interval_seconds=some.sampled_from([0, 10, 60, 300]),
        lag_seconds_target=some.integers(1, 300),
        catch_up_seconds=some.integers(1, 3_600),
        target_utilization=some.floats(0.05, 1.0),
        partition_alignment=some.sampled_from(["off", "balanced", "even"]),
    )


@some.composite
def histories(draw: Any) -> Sequence[Sample]:  # noqa: ANN401  hypothesis'
    """Samples of all kinds, most of them good, by a clock that sometimes jumps."""
    partitions, replicas = draw(some.integers(0, 40)), draw(some.integers(0, 40))
    at_ms, found = 10**6, []
    for _ in range(draw(some.integers(1, 12))):
        at_ms += draw(some.sampled_from([10_000] * 8 + [0, -50_000, 10**6, 1]))
        is_good = draw(some.integers(0, 5)) > 0
        found.append(
            Sample(
                at_ms=at_ms,
                activity=GroupActivity.STABLE if is_good else draw(some.sampled_from(GroupActivity)),
                replicas=replicas,
                members=replicas if is_good else draw(some.integers(0, 40)),
                generation=1 if is_good else draw(some.sampled_from([None, 0, 1, 2])),
                pause_ms=draw(some.sampled_from([None, 0, 500, 60_000])),
                partitions=partitions,
                arrival_rate=draw(some.floats(0, 1e5)) if is_good else draw(RATES),
                backlog=draw(some.integers(0, 10**7)) if is_good else draw(COUNTS),
                lag_seconds=draw(some.sampled_from([None, 0.0, 50.0, 5_000.0])),
                hottest=tuple(draw(some.lists(LOADS, max_size=3))),
                is_partial=draw(some.booleans()) and not is_good,
                done=draw(some.integers(0, 10**5)),
                busy_seconds=draw(some.floats(0, 100)),
            )
        )
    return found


def decided(samples: Sequence[Sample], spec: Autoscaling) -> Decision:
    decision = decide(history_of(samples, spec), spec)
    assert decision is not None
    return decision


@EXAMPLES
@given(histories(), specs())
def test_a_changed_number_is_within_bounds_and_aligned(samples: Sequence[Sample], spec: Autoscaling) -> None:
    found = decided(samples, spec)
    if found.replicas == found.inputs.replicas:
        return
    partitions = found.inputs.partitions
    assert partitions is not None
    bounds = bounds_of(spec, partitions)
    assert bounds.low <= found.replicas <= bounds.high
    numbers = [n for n in range(bounds.low, bounds.high + 1) if n and is_aligned(n, partitions, spec)]
    # The edge of the bounds and the number that did not help are exceptions, which their reasons name.
    is_named = found.reason.value == "OutOfBounds" or found.inputs.ineffective_replicas is not None
    assert is_named or not numbers or is_aligned(found.replicas, partitions, spec)


@EXAMPLES
@given(histories(), specs(), some.floats(0, 1e5), some.integers(0, 10**7))
def test_more_load_never_gives_fewer_replicas(
    samples: Sequence[Sample], spec: Autoscaling, arrival: float, backlog: int
) -> None:
    def raised(each: Sample) -> Sample:
        if each.arrival_rate is None or each.backlog is None or each.arrival_rate < 0 or each.backlog < 0:
            return each
        return replace(each, arrival_rate=each.arrival_rate + arrival, backlog=each.backlog + backlog)

    assert decided([raised(each) for each in samples], spec).replicas >= decided(samples, spec).replicas


@EXAMPLES
@given(histories(), specs(), some.sampled_from(["arrival_rate", "backlog", "partitions"]))
def test_nothing_changes_on_unknown(samples: Sequence[Sample], spec: Autoscaling, missing: str) -> None:
    last = replace(samples[-1], at_ms=samples[-1].at_ms + 1, **{missing: None})  # type: ignore[arg-type]
    found = decided([*samples, last], spec)
    assert not found.is_change or (missing != "partitions" and last.partitions == 0)


@EXAMPLES
@given(histories(), specs())
def test_there_is_at_most_one_change_for_each_interval(samples: Sequence[Sample], spec: Autoscaling) -> None:
    history, replicas, changed_ms = History(), samples[0].replicas, None
    for each in samples:
        history = history.with_sample(replace(each, replicas=replicas), spec)
        found = decide(history, spec)
        assert found is not None
        now_ms = found.inputs.at_ms
        # A clock that was set back counts from there.
        changed_ms = None if changed_ms is None else min(changed_ms, now_ms)
        if found.replicas != found.inputs.replicas:
            assert changed_ms is None or now_ms - changed_ms >= spec.min_change_interval_seconds * 1000
            history = history.with_change(now_ms, replicas, found.replicas)
            replicas, changed_ms = found.replicas, now_ms
        elif found.is_rebalance:
            assert changed_ms is None or now_ms - changed_ms >= spec.min_change_interval_seconds * 1000
            history = history.with_rebalance(now_ms, found.inputs.hot_partitions)
            changed_ms = now_ms


@EXAMPLES
@given(histories(), specs())
def test_a_rebalance_is_for_a_hot_partition_and_changes_no_number(
    samples: Sequence[Sample], spec: Autoscaling
) -> None:
    found = decided(samples, spec)
    if found.is_rebalance:
        assert found.replicas == found.inputs.replicas
        assert found.inputs.hot_partitions
        assert found.inputs.rebalance_gain > 0


@EXAMPLES
@given(histories(), specs())
def test_the_same_inputs_give_the_same_decision(samples: Sequence[Sample], spec: Autoscaling) -> None:
    found = decided(samples, spec)
    assert judge(found.inputs, spec) == found
    assert decided(samples, spec) == found
