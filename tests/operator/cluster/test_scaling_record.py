"""The record of an autoscaler in the status: decisions that can be made again, bounded, quiet, and what the next leader needs."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given

from rota_operator.autoscaling.decision import Reason, decide, judge
from rota_operator.autoscaling.decision_log import DECISIONS_MAX
from rota_operator.autoscaling.history import History, IneffectiveChange
from rota_operator.autoscaling.inputs import Inputs, Knowledge
from rota_operator.autoscaling.samples import Sample
from rota_operator.cluster.scaling_record import (
    changed,
    history_of,
    is_new,
    rebalanced,
    recorded,
)
from rota_operator.spec.status import ConsumerGroupStatus, Scaling, ScalingDecision
from rota_operator.spec.workload import Autoscaling
from rota_operator.status.status import read_status, status_json
from rota_operator.timestamps import milliseconds
from tests.operator.autoscaling import histories
from tests.operator.autoscaling.test_properties import EXAMPLES, specs
from tests.operator.autoscaling.test_properties import histories as drawn_samples

AT_MS = 1_700_000_000_000


def stored(scaling: Scaling) -> Scaling:
    """The record as it is read back from the API server."""
    return read_status({"status": status_json(ConsumerGroupStatus(scaling=scaling))}).scaling


def record_of(samples: Sequence[Sample], spec: Autoscaling, former: Scaling | None = None) -> Scaling:
    """The record of a decision on each sample."""
    found, history = former or Scaling(), History()
    for sample in samples:
        history = history.with_sample(sample, spec)
        decision = decide(history, spec)
        assert decision is not None
        found = recorded(found, decision, history, None, dry_run=False)
    return found


def inputs_of(entry: ScalingDecision) -> Inputs:
    """The inputs of a decision as they were judged."""
    held = {**entry.inputs.model_dump(), "knowledge": Knowledge(entry.inputs.knowledge)}
    return Inputs(at_ms=milliseconds(entry.time), replicas=entry.replicas, **held)


@given(drawn_samples(), specs())
@EXAMPLES
def test_each_decision_can_be_made_again_from_the_status(
    samples: Sequence[Sample], spec: Autoscaling
) -> None:
    found = record_of(samples, spec)
    assert stored(found) == found
    for entry in stored(found).decisions:
        again = judge(inputs_of(entry), spec)
        assert (again.inputs.replicas, again.replicas, again.reason) == (
            entry.replicas, entry.recommendation, entry.reason,
        )  # fmt: skip


def test_a_decision_that_repeats_the_last_one_changes_nothing() -> None:
    spec = histories.spec_of()
    first = record_of(histories.samples_of(4), spec)
    assert [each.reason for each in first.decisions] == [Reason.WITHIN_TARGET, Reason.FEW_SAMPLES]
    assert record_of(histories.samples_of(9), spec) == first


def test_the_newest_decisions_are_kept() -> None:
    spec, found = histories.spec_of(), Scaling()
    for replicas in range(DECISIONS_MAX + 5):
        found = record_of(histories.samples_of(1, replicas=replicas), spec, found)
    assert [each.replicas for each in found.decisions] == [*range(DECISIONS_MAX + 4, 4, -1)]


def test_numbers_and_reason_make_a_decision_new() -> None:
    spec = histories.spec_of()
    found = record_of(histories.samples_of(4), spec)
    history = histories.history_of(histories.samples_of(4), spec)
    decision = decide(history, spec)
    assert decision is not None
    assert not is_new(found, decision)
    assert is_new(Scaling(), decision)
    assert is_new(found, replace(decision, reason=Reason.STABILIZING))
    assert is_new(found, replace(decision, replicas=3))


def test_the_next_leader_waits_from_the_last_change_and_knows_what_did_not_help() -> None:
    spec = histories.spec_of(min_change_interval_seconds=300)
    samples = [replace(each, at_ms=AT_MS + each.at_ms, arrival_rate=90.0) for each in histories.samples_of(4)]
    noted = History(ineffective=(IneffectiveChange(AT_MS, 2, 4),))
    decision = decide(histories.history_of(samples, spec, noted), spec)
    assert decision is not None
    left = stored(changed(recorded(Scaling(), decision, noted, 13, dry_run=False), AT_MS))
    assert left.needed_replicas == 13

    history = history_of(left)
    assert history.is_judged
    assert history.ineffective == noted.ineffective
    recent = decide(histories.history_of(samples, spec, replace(history, ineffective=())), spec)
    assert recent is not None
    assert (recent.replicas, recent.reason) == (2, Reason.CHANGE_INTERVAL)
    assert recent.inputs.since_change_ms == samples[-1].at_ms - AT_MS
    bound = decide(histories.history_of(samples, spec, replace(history, change=None)), spec)
    assert bound is not None
    assert (bound.replicas, bound.reason) == (2, Reason.INEFFECTIVE_CHANGE)


def test_the_next_leader_waits_from_the_last_rebalance_too() -> None:
    history = history_of(stored(rebalanced(Scaling(), AT_MS)))
    assert (history.change, history.changed_ms) == (None, AT_MS)
    assert (
        history_of(stored(rebalanced(changed(Scaling(), AT_MS), AT_MS + 5_000))).changed_ms == AT_MS + 5_000
    )


@pytest.mark.parametrize("scaling", [Scaling(), Scaling(recommendation=3)])
def test_a_status_without_a_change_makes_no_history(scaling: Scaling) -> None:
    assert history_of(scaling) == History()
