"""Samples of a group: arrival by end offsets, work by the counters of sidecars, unknown values stay unknown."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rota_operator.autoscaling.decision import decide
from rota_operator.autoscaling.decision_log import DECISIONS_MAX, DecisionLog
from rota_operator.autoscaling.measure import HOTTEST_MAX, Measurement, measure
from rota_operator.autoscaling.samples import GroupActivity, PartitionLoad
from rota_operator.overview.view import EventKind, GroupView, HistoryEvent, MemberView, PartitionView
from rota_proto.fleet.v1.fleet_pb2 import MemberReport, SidecarReport
from tests.operator.autoscaling.histories import history_of, samples_of, spec_of

MEMBER = MemberView("work-0", "id-0", "Stable", 3, ("work-0",))
PARTITION = PartitionView("work", 0, "work-0", end=100, lag_records=5, lag_seconds=1.5, arrival_rate=7.0)


def view(
    partitions: Sequence[PartitionView] = (PARTITION,),
    members: Sequence[MemberView] = (MEMBER,),
    state: str = "Stable",
    **fields: Any,  # noqa: ANN401  fields of any type
) -> GroupView:
    given = {"history": (), "partitions_left_out": 0, **fields}
    return GroupView(
        group_id="work", name="default/work", state=state, generation=3, strategy="", members=tuple(members),
        partitions=tuple(partitions), unowned=0, lag_records=None, lag_seconds=None, arrival_rate=None, done_rate=None,
        rebalances=0, **given,
    )  # fmt: skip


def report(done: int, busy_seconds: float) -> dict[str, SidecarReport]:
    return {"work-0": SidecarReport(member=MemberReport(records_done=done, busy_seconds=busy_seconds))}


def first() -> Measurement:
    return measure(None, view(), report(50, 2.0), 1, 1_000)


def test_the_first_sample_has_what_the_sidecars_report() -> None:
    sample = first().sample
    assert (sample.arrival_rate, sample.backlog, sample.lag_seconds) == (7.0, 5, 1.5)
    assert (sample.done, sample.busy_seconds) == (0, 0.0)
    assert (sample.activity, sample.members, sample.partitions) == (GroupActivity.STABLE, 1, 1)
    assert (sample.is_partial, sample.silent) == (False, 0)


def test_arrival_is_the_rise_of_the_end_offset_also_without_an_owner() -> None:
    unowned = replace(PARTITION, owner=None, end=300, arrival_rate=None, lag_records=205)
    sample = measure(first(), view([unowned]), report(90, 4.0), 1, 11_000).sample
    assert (sample.arrival_rate, sample.backlog) == (20.0, 205)
    assert (sample.done, sample.busy_seconds) == (40, 2.0)
    assert sample.hottest == (PartitionLoad("work-0", 20.0, 205),)


def test_a_sidecar_that_restarted_counts_anew() -> None:
    sample = measure(first(), view(), report(3, 0.1), 1, 11_000).sample
    assert (sample.done, sample.busy_seconds) == (0, 0.0)


def test_a_topic_that_was_created_anew_has_no_rate_at_first() -> None:
    sample = measure(first(), view([replace(PARTITION, end=2)]), report(50, 2.0), 1, 11_000).sample
    assert (sample.arrival_rate, sample.is_partial) == (None, True)


@pytest.mark.parametrize(
    "partial",
    [
        view([PARTITION, PartitionView("work", 1, None)]),
        view(partitions_left_out=3),
        view(members=[MEMBER, replace(MEMBER, name="work-1", state="Unknown")]),
    ],
)
def test_what_is_unknown_of_some_makes_the_sample_partial(partial: GroupView) -> None:
    assert measure(None, partial, {}, 1, 1_000).sample.is_partial


def test_a_topic_that_vanishes_leaves_no_partitions() -> None:
    sample = measure(first(), view([]), {}, 1, 11_000).sample
    assert (sample.partitions, sample.arrival_rate, sample.backlog) == (0, None, None)


@pytest.mark.parametrize(
    ("state", "replicas", "activity"),
    [
        ("Stable", 1, GroupActivity.STABLE),
        ("PreparingRebalance", 1, GroupActivity.REBALANCING),
        ("CompletingRebalance", 1, GroupActivity.REBALANCING),
        ("Empty", 1, GroupActivity.REBALANCING),
        ("Empty", 0, GroupActivity.EMPTY),
        ("Dead", 0, GroupActivity.EMPTY),
        ("Unknown", 1, GroupActivity.UNKNOWN),
    ],
)
def test_each_state_of_a_group_has_its_activity(state: str, replicas: int, activity: GroupActivity) -> None:
    sample = measure(None, view(state=state), {}, replicas, 1_000).sample
    assert sample.activity is activity
    assert (sample.partitions is None) is (activity is GroupActivity.UNKNOWN)


def test_members_that_drain_or_have_not_joined_do_not_count() -> None:
    members = [
        MEMBER,
        replace(MEMBER, name="work-1", draining=True),
        replace(MEMBER, name="work-2", member_id=None, state="Unknown"),
        replace(MEMBER, name="work-3", suspended=True),
    ]
    sample = measure(None, view(members=members), {}, 4, 1_000).sample
    assert (sample.members, sample.is_suspended) == (2, True)


def test_the_pause_is_that_of_recent_rebalances() -> None:
    history = [
        HistoryEvent(at, EventKind.REBALANCE, "", at, pause)
        for at, pause in ((9, 900), (8, None), (7, 100), (6, 300))
    ]
    sample = measure(
        None, view(history=(HistoryEvent(10, EventKind.SCALE, ""), *history)), {}, 1, 1_000
    ).sample
    assert (sample.pause_ms, sample.rebalanced_ms) == (300, 9)


def test_the_partitions_that_are_looked_at_are_bounded() -> None:
    many = [replace(PARTITION, partition=number, arrival_rate=float(number)) for number in range(100)]
    sample = measure(None, view(many), {}, 1, 1_000).sample
    assert len(sample.hottest) == HOTTEST_MAX
    assert sample.hottest[0] == PartitionLoad("work-99", 99.0, 5)


def test_the_last_decisions_are_kept_and_what_repeats_is_one() -> None:
    spec, log = spec_of(), DecisionLog(dry_run=True)
    for number in range(30):
        decision = decide(history_of(samples_of(3 + number, replicas=2 + number // 2), spec), spec)
        assert decision is not None
        assert log.add(decision) is (number % 2 == 0)
    assert len(log.decisions) <= DECISIONS_MAX
    newest = log.decisions[0]
    assert (newest.before, newest.dry_run, newest.at_ms) == (16, True, 320_000)
    assert newest.inputs["arrival_rate"] == 10.0
