"""Growth by what will be: records that will be late before replicas have started, and replicas that stay once they were added."""

from dataclasses import replace
from typing import Any

from rota_operator.autoscaling.decision import Decision, Reason, decide, judge
from rota_operator.autoscaling.history import History
from rota_operator.autoscaling.samples import PartitionLoad, Sample
from rota_operator.spec.workload import Autoscaling
from tests.operator.autoscaling.histories import CALM, POLL_MS, START_MS, history_of, samples_of, spec_of

# 2 replicas process 20 records per second.
OVERLOADED: dict[str, Any] = {"arrival_rate": 40.0, "done": 200, "busy_seconds": 20.0}


def decided(history: History, spec: Autoscaling) -> Decision:
    decision = decide(history, spec)
    assert decision is not None
    assert judge(decision.inputs, spec) == decision
    return decision


def with_backlog(*backlogs: int) -> list[Sample]:
    """Overloaded samples after a calm time, with a growing backlog."""
    calm = samples_of(12)
    return [
        *calm,
        *(
            replace(CALM, at_ms=calm[-1].at_ms + (n + 1) * POLL_MS, backlog=each, **OVERLOADED)
            for n, each in enumerate(backlogs)
        ),
    ]


def starting_in(start_ms: int | None, *samples: Sample, spec: Autoscaling | None = None) -> Decision:
    """The decision of a group whose replicas have started within a time before."""
    spec = spec or spec_of()
    return decided(history_of(samples, spec, History(start_ms=start_ms)), spec)


def test_replicas_that_start_soon_are_added_for_what_arrives_and_the_usual_catch_up() -> None:
    # (40 + 400 / 600) / 7 = 5.8
    found = starting_in(START_MS, *with_backlog(200, 400, 400))
    assert (found.replicas, found.inputs.will_be_late) == (6, False)


def test_replicas_that_start_too_late_are_added_for_the_backlog_that_there_will_be() -> None:
    # Half of what arrives is left, so in 130 s the oldest record is 65 s old; (40 + (400 + 20 * 130) / 60) / 7 = 12.9
    found = starting_in(130_000, *with_backlog(200, 400, 400))
    assert (found.replicas, found.inputs.will_be_late) == (12, True)
    # In 110 s it is 55 s old; one is spare.
    assert starting_in(110_000, *with_backlog(200, 400, 400)).replicas == 7


def test_replicas_start_too_late_as_long_as_their_start_was_not_measured() -> None:
    # (40 + (400 + 20 * 30) / 60) / 7 = 8.1
    found = starting_in(None, *with_backlog(200, 400, 400))
    assert (found.replicas, found.inputs.will_be_late) == (9, True)


def test_one_replica_more_is_kept_where_records_would_be_late_before_a_further_one_has_started() -> None:
    """A load that rises is then met by a replica that is there."""
    # 15 / 7 = 2.1
    samples = samples_of(12, arrival_rate=15.0)
    assert starting_in(None, *samples).replicas == 3
    assert starting_in(60_000, *samples).replicas == 3
    found = starting_in(60_001, *samples)
    assert found.replicas == 4
    assert "needed, one of them spare because a further one takes 60 s to start: 4" in found.explanation
    assert starting_in(60_001, *samples_of(12, arrival_rate=0.0)).replicas == 1, "without a load none is kept"


def test_a_load_that_the_replicas_can_process_makes_nothing_late() -> None:
    found = starting_in(None, *samples_of(12, arrival_rate=15.0))
    assert (found.replicas, found.inputs.will_be_late) == (3, False)


def test_growth_does_not_wait_for_a_second_sample_if_the_backlog_shows_that_the_group_will_be_late() -> None:
    # 20 records per second need 10.05 s for 201 records: more than until the next sample.
    assert starting_in(None, *with_backlog(201)).replicas > 2
    assert starting_in(None, *with_backlog(200)).reason is Reason.STABILIZING
    assert starting_in(START_MS, *with_backlog(201)).reason is Reason.STABILIZING, "there is time"


def test_growth_does_not_wait_if_records_will_wait_for_half_of_the_target() -> None:
    # 20 records per second need 30 s for 600 records.
    assert starting_in(START_MS, *with_backlog(601)).replicas > 2
    assert starting_in(START_MS, *with_backlog(600)).reason is Reason.STABILIZING


def test_the_start_of_replicas_is_measured_from_the_change_until_they_have_joined() -> None:
    spec = spec_of()
    history = history_of(samples_of(12, **OVERLOADED), spec, History()).with_change(12 * POLL_MS, 2, 6)
    assert history.start_ms is None
    waiting = samples_of(3, start_ms=13 * POLL_MS, replicas=6, members=2, **OVERLOADED)
    history = history_of(waiting, spec, history)
    assert history.start_ms is None
    joined = samples_of(3, start_ms=16 * POLL_MS, replicas=6, members=6, **OVERLOADED)
    assert history_of(joined, spec, history).start_ms == 4 * POLL_MS


def test_no_start_is_measured_after_another_client_has_changed_the_number() -> None:
    spec = spec_of()
    history = history_of(samples_of(12, **OVERLOADED), spec, History()).with_change(12 * POLL_MS, 2, 6)
    history = history_of(samples_of(1, start_ms=13 * POLL_MS, replicas=3, members=2), spec, history)
    later = samples_of(3, start_ms=14 * POLL_MS, replicas=6, members=6)
    assert history_of(later, spec, history).start_ms is None


def test_fewer_replicas_measure_no_start() -> None:
    spec = spec_of()
    history = history_of(samples_of(12), spec).with_change(12 * POLL_MS, 2, 1)
    calm = samples_of(3, start_ms=13 * POLL_MS, replicas=1, members=1)
    assert history_of(calm, spec, history).start_ms == START_MS


def test_replicas_that_were_added_stay_for_three_intervals() -> None:
    spec = spec_of(min_change_interval_seconds=20)
    history = history_of(samples_of(12), spec).with_change(12 * POLL_MS, 2, 6)
    found = []
    for sample in samples_of(7, start_ms=13 * POLL_MS, replicas=6, members=6):
        history = history.with_sample(sample, spec)
        found.append(decided(history, spec))
    assert [each.replicas for each in found] == [6] * 5 + [2] * 2
    assert found[4].reason is Reason.STABILIZING
    assert "added ones stay for 60 s" in found[4].explanation


def test_replicas_that_were_added_go_if_there_are_more_than_the_maximum() -> None:
    spec = spec_of(min_change_interval_seconds=20, max_replica_count=4)
    history = history_of(samples_of(12), spec).with_change(12 * POLL_MS, 2, 6)
    history = history_of(samples_of(3, start_ms=13 * POLL_MS, replicas=6, members=6), spec, history)
    assert (decided(history, spec).replicas, decided(history, spec).reason) == (4, Reason.OUT_OF_BOUNDS)


def skewed(others: float) -> Sample:
    """4 replicas, one partition with more load than a replica processes, and the load of all the others."""
    loads = tuple(PartitionLoad(f"orders-{n}", 20.0 if n == 0 else others / 11, 0) for n in range(12))
    arrives = sum(each.arrival_rate for each in loads)
    return replace(CALM, replicas=4, members=4, arrival_rate=arrives, hottest=loads)


def test_a_hot_partition_adds_no_replicas_as_long_as_the_others_load_can_be_processed() -> None:
    """The hot partition keeps one replica above the target utilization, whatever the number is."""
    spec = spec_of(partition_alignment="balanced")
    # 7 + 30 are more than 4 * 7, and less than 4 * 10.
    found = decided(history_of(samples_of(12, skewed(30.0)), spec), spec)
    assert (found.replicas, found.reason) == (4, Reason.HOT_PARTITIONS)
    assert "orders-0: more load than one replica processes" in found.explanation
    assert decided(history_of(samples_of(12, skewed(36.0)), spec), spec).replicas > 4


def test_urgent_growth_does_not_wait_for_a_second_sample_if_a_partition_is_hot() -> None:
    spec = spec_of()
    calm = samples_of(12, skewed(11.0))
    sudden = replace(skewed(66.0), at_ms=13 * POLL_MS, backlog=1_300)
    found = decided(history_of([*calm, sudden], spec), spec)
    assert found.inputs.hot_partitions
    # (7 + 66 + 1300 / 600) / 7 = 10.7
    assert (found.replicas, found.reason) == (11, Reason.LOAD_ABOVE_TARGET)


def test_a_start_that_was_measured_at_a_growth_counts_more_than_that_of_replicas_of_before() -> None:
    assert History().with_earlier_start(7).start_ms == 7
    assert History(start_ms=5).with_earlier_start(7).start_ms == 5
