"""Conditions are True only of what is known: each reason once, the unknown, and that all reasons are documented."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota_operator.overview.group import OTHER_CLIENT
from rota_operator.overview.problems import NOT_AUTHORIZED, CoordinatorProblem
from rota_operator.overview.view import GroupView
from rota_operator.reconcile.decision import Refusal, Remark
from rota_operator.spec.conditions import DOCUMENTED, ConditionType, Reason
from rota_operator.spec.status import ConsumerGroupStatus, Scaling
from rota_operator.status.inputs import AutoscalerState, Pods, Progress, Sidecars, pods_of
from tests.operator.status.groups import (
    DECISION,
    NOW_MS,
    condition,
    group,
    inputs,
    member,
    partition,
    progress,
    reported,
    status,
)

Json = Any
OF_ANOTHER = CoordinatorProblem(message="its certificate is not issued for the name of its address")
UNKNOWN_GROUP = group(state="Unknown")
UNOWNED = group(partitions=(partition(0), partition(1, owner=None), partition(2), partition(3)))
SILENT = group(members=(member("orders-a"), member("orders-b", state="Unknown", generation=None)))
UNATTENDED = group(members=(member("orders-a"), member("orders-b", unattached_seconds=0.0)))
FOREIGN = group(members=(member("orders-a"), member("orders-b", state=OTHER_CLIENT, generation=None)))
EMPTY = group(state="Empty", members=(), partitions=())
REFUSED_MEMBER = replace(
    EMPTY,
    members=tuple(
        member(name, member_id="", partitions=(), last_error="grant the group to this client")
        for name in ("orders-a", "orders-b")
    ),
)
WITHOUT_TOPIC = group(
    partitions=(), members=(member("orders-a", partitions=(), problems=("topic orders does not exist",)),)
)
IDLE = replace(DECISION, desired_replicas=0)
REFUSED_PODS = Pods(2, 0, 'pods "orders-x" is forbidden: exceeded quota: pods, requested: pods=1')
ON_KAFKA = replace(DECISION, coordination="Kafka")


# By the status of the condition.
READY = {"True": group(), "False": UNOWNED}


def of_kafka(*members: Any, **given: Any) -> GroupView:  # noqa: ANN401
    """As the reports alone show a group."""
    return group(state="Unknown", generation=None, members=members, **given)


@pytest.mark.parametrize(
    ("changes", "status_of_ready", "reason", "excerpt"),
    [
        ({}, "True", Reason.PARTITIONS_PROGRESS, "4 partitions, each with an owner"),
        ({"group": None}, "Unknown", Reason.COORDINATOR_UNREACHABLE, "does not answer"),
        ({"group": UNKNOWN_GROUP}, "Unknown", Reason.COORDINATOR_UNREACHABLE, "does not answer"),
        ({"group": None, "problem": NOT_AUTHORIZED}, "Unknown", Reason.COORDINATOR_REFUSED, "refuses the operator: GROUP_AUTHORIZATION_FAILED: the operator is not an administrator"),
        ({"group": UNKNOWN_GROUP, "problem": OF_ANOTHER}, "Unknown", Reason.COORDINATOR_UNREACHABLE, "does not answer: its certificate is not issued for the name"),
        ({"problem": NOT_AUTHORIZED}, "True", Reason.PARTITIONS_PROGRESS, ""),
        ({"group": None, "failure": Refusal(Reason.UNAVAILABLE, "no route")}, "Unknown", Reason.UNAVAILABLE, "no route"),
        ({"failure": Refusal(Reason.UNAVAILABLE, "no route")}, "True", Reason.PARTITIONS_PROGRESS, ""),
        ({"failure": Refusal(Reason.FORBIDDEN, "may not patch")}, "False", Reason.FORBIDDEN, "may not patch"),
        (
            {"sidecars": Sidecars(refused_settings={"orders-a": "assignment.strategy: unknown strategy acme"})},
            "False",
            Reason.SETTINGS_REFUSED,
            "orders-a: spec.assignment.strategy: unknown strategy acme",
        ),
        (
            {"sidecars": Sidecars(fenced={"orders-b": "b was fenced", "orders-a": "a was fenced"})},
            "False",
            Reason.INSTANCE_FENCED,
            "a was fenced. b was fenced",
        ),
        ({"group": EMPTY}, "False", Reason.NO_MEMBERS, "no members; 2 of 2 pods are ready"),
        ({"group": REFUSED_MEMBER}, "False", Reason.NO_MEMBERS, "no members; 2 of 2 pods are ready. Sidecars: grant the group to this client"),
        ({"group": EMPTY, "pods": REFUSED_PODS}, "False", Reason.PODS_REFUSED, "exceeded quota"),
        ({"group": EMPTY, "pods": Pods(0, 0), "decision": IDLE}, "False", Reason.SCALED_TO_ZERO, "no replicas"),
        ({"group": WITHOUT_TOPIC}, "False", Reason.NO_PARTITIONS, "topic orders does not exist"),
        ({"group": UNOWNED}, "False", Reason.PARTITIONS_UNOWNED, "without an owner: orders-1"),
        ({"group": SILENT}, "Unknown", Reason.SIDECAR_SILENT, "no reports from: orders-b"),
        ({"group": UNATTENDED}, "False", Reason.APPLICATION_MISSING, "owners of: orders-1 (orders-b); orders-3 (orders-b)"),
        ({"group": UNATTENDED, "progress": progress(121)}, "False", Reason.PARTITIONS_STUCK, "no progress"),
        ({"group": FOREIGN}, "Unknown", Reason.PROGRESS_UNKNOWN, "orders-1 (orders-b has sent no report: it has not connected yet, or is no sidecar of Rota)"),
        ({"progress": {}}, "Unknown", Reason.PROGRESS_UNKNOWN, "orders-0 (its owner reports nothing about it)"),
        ({"progress": progress(None)}, "Unknown", Reason.PROGRESS_UNKNOWN, "orders-0 (its sidecar does not report progress)"),
        ({"progress": progress(121, "no committed offset")}, "False", Reason.PARTITIONS_STUCK, "orders-0: no committed offset"),
        ({"progress": progress(1, "a retry waits")}, "True", Reason.PARTITIONS_PROGRESS, ""),
        ({"progress": progress(121)}, "False", Reason.PARTITIONS_STUCK, "orders-0: no progress for more than 120 s"),
        ({"progress": progress(119)}, "True", Reason.PARTITIONS_PROGRESS, ""),
        ({"cluster_id": "b", "resource": {"clusterId": "a"}}, "False", Reason.CLUSTER_CHANGED, "lead to cluster b"),
        ({"cluster_id": "a", "resource": {"clusterId": "a"}}, "True", Reason.PARTITIONS_PROGRESS, ""),
        ({"decision": replace(DECISION, refusal=Refusal(Reason.TARGET_NOT_FOUND, "it is gone"))}, "False", Reason.TARGET_NOT_FOUND, "gone"),
        ({"group": group(partitions_left_out=2)}, "Unknown", Reason.PROGRESS_UNKNOWN, "2 partitions are not listed"),
    ],
)  # fmt: skip
def test_ready_is_true_only_while_every_partition_has_an_owner_that_makes_progress(
    changes: Json, status_of_ready: str, reason: Reason, excerpt: str
) -> None:
    changes = dict(changes)
    if "resource" in changes:
        changes["resource"] = {**inputs().resource, "status": changes["resource"]}
    ready = condition(status(**changes), "Ready")
    assert (ready.status, ready.reason, excerpt in ready.message) == (status_of_ready, reason, True), (
        ready.message
    )


def test_the_progress_of_a_partition_is_that_of_its_owner() -> None:
    """A sidecar that stood still reports, when it goes on, partitions that have another owner by now."""
    frozen = {reported(1, "orders-a"): Progress(NOW_MS - 500_000)}
    for made in ({**progress(), **frozen}, {**frozen, **progress()}):
        assert condition(status(progress=made), "Ready").status == "True"
    made = {**progress(), reported(1, "orders-a"): Progress(NOW_MS)}
    del made[reported(1)]
    ready = condition(status(progress=made), "Ready")
    assert (ready.status, ready.reason) == ("Unknown", Reason.PROGRESS_UNKNOWN)


def test_a_group_that_was_ready_stays_so_while_an_application_starts_again() -> None:
    """A group becomes Ready only once every owner has an application."""

    def ready(before: str, unattached_s: float | None, lag_records: int = 0) -> tuple[str, str]:
        found = group(
            members=(member("orders-a"), member("orders-b", unattached_seconds=unattached_s)),
            partitions=tuple(partition(number, lag_records=lag_records) for number in range(4)),
        )
        shown = condition(status(group=found, former=status(group=READY[before])), "Ready")
        return shown.status, shown.reason

    for lag_records in (0, 10):
        assert ready("True", 5, lag_records) == ("True", Reason.PARTITIONS_PROGRESS)
        assert ready("True", 5.1, lag_records) == ("False", Reason.APPLICATION_MISSING)
        assert ready("False", 0.1, lag_records) == ("False", Reason.APPLICATION_MISSING)
        assert ready("False", None, lag_records) == ("True", Reason.PARTITIONS_PROGRESS)


def test_a_partition_is_stuck_after_the_threshold() -> None:
    spec = {"monitoring": {"alerts": {"stuckSeconds": 7}}}
    for age_s, is_stuck in ((6, "False"), (8, "True")):
        found = condition(status(spec, progress=progress(age_s)), "Stuck")
        assert (found.status, found.status == "False" or "more than 7 s" in found.message) == (is_stuck, True)


def test_a_partition_without_records_to_process_is_not_stuck() -> None:
    idle = group(partitions=tuple(partition(number, lag_records=0, lag_seconds=0.0) for number in range(4)))
    found = status(group=idle, progress=progress(9_999))
    assert (condition(found, "Ready").status, condition(found, "Stuck").status) == ("True", "False")


def test_a_partition_that_stands_still_is_stuck_also_if_its_lag_is_not_known() -> None:
    blind = group(partitions=tuple(partition(number, lag_records=None) for number in range(4)))
    for problem in ("no progress for more than 120 s", "record 7 has failed for good"):
        made = progress(121, "" if problem.startswith("no progress") else problem)
        found = condition(status(group=blind, progress=made), "Stuck")
        assert (found.status, found.message.startswith(f"orders-0: {problem}; ")) == ("True", True)


@pytest.mark.parametrize(
    ("seconds", "threshold_s", "expected"),
    [
        ((1.0, 2.0), 300, "False"),
        ((1.0, 301.0), 300, "True"),
        ((1.0, 301.0), 400, "False"),
        ((1.0, None), 300, "Unknown"),
        ((301.0, None), 300, "True"),
    ],
)
def test_lag_is_compared_with_the_threshold(
    seconds: tuple[float | None, ...], threshold_s: int, expected: str
) -> None:
    late = group(partitions=tuple(partition(number, lag_seconds=each) for number, each in enumerate(seconds)))
    spec = {"monitoring": {"alerts": {"lagSeconds": threshold_s}}}
    assert condition(status(spec, group=late), "Lagging").status == expected


def test_lag_of_a_partition_without_owner_counts() -> None:
    late = group(partitions=(partition(0), partition(1, owner=None, lag_seconds=301.0, lag_records=7)))
    found = status(group=late)
    assert condition(found, "Lagging").message == "more than 300 s behind: orders-1"
    assert (found.lag.total, found.lag.max, found.lag.max_seconds, found.unowned_partitions) == (
        17,
        10,
        301,
        1,
    )


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("Stable", "False"),
        ("Empty", "False"),
        ("PreparingRebalance", "True"),
        ("CompletingRebalance", "True"),
        ("Unknown", "Unknown"),
    ],
)
def test_rebalancing_is_what_the_coordinator_says(state: str, expected: str) -> None:
    assert condition(status(group=group(state=state)), "Rebalancing").status == expected


@pytest.mark.parametrize(
    ("changes", "expected", "reason"),
    [
        ({"group": UNOWNED}, "Unknown", Reason.PARTITIONS_UNOWNED),
        ({"group": SILENT}, "Unknown", Reason.PROGRESS_UNKNOWN),
        ({"group": UNATTENDED}, "False", Reason.APPLICATION_MISSING),
        ({"group": None}, "Unknown", Reason.PROGRESS_UNKNOWN),
        ({"group": EMPTY, "pods": Pods(0, 0), "decision": IDLE}, "False", Reason.SCALED_TO_ZERO),
    ],
)
def test_stuck_is_unknown_of_what_is_not_seen(changes: Json, expected: str, reason: Reason) -> None:
    found = condition(status(**changes), "Stuck")
    assert (found.status, found.reason) == (expected, reason)


def test_a_suspended_group_is_neither_ready_nor_stuck() -> None:
    found = status({"suspend": True}, progress=progress(9_999))
    assert [(each.status, each.reason) for each in found.conditions if each.type in ("Ready", "Stuck")] == [
        ("False", Reason.SUSPENDED),
        ("False", Reason.SUSPENDED),
    ]


def test_remarks_stand_in_the_message_and_change_no_status() -> None:
    remarks = (
        Remark(ConditionType.READY, Reason.NO_RACK, "no rack"),
        Remark(ConditionType.SCALING_ACTIVE, Reason.FOREIGN_AUTOSCALER, "hpa scales it"),
    )
    found = status(decision=replace(DECISION, remarks=remarks))
    ready, scaling = condition(found, "Ready"), condition(found, "ScalingActive")
    assert (ready.status, ready.message.endswith(". NoRack: no rack")) == ("True", True)
    assert (scaling.status, scaling.reason, scaling.message) == (
        "False",
        Reason.FOREIGN_AUTOSCALER,
        "hpa scales it",
    )


AUTOSCALED = replace(DECISION, is_autoscaled=True)
SCALED = Scaling(recommendation=3, needed_replicas=7)


@pytest.mark.parametrize(
    ("spec", "changes", "expected"),
    [
        ({}, {}, ("False", Reason.AUTOSCALING_DISABLED, "")),
        ({"autoscaling": {"enabled": False}}, {"autoscaler": AutoscalerState(SCALED)}, ("False", Reason.AUTOSCALING_DISABLED, "")),
        ({"autoscaling": {"enabled": True}}, {"decision": DECISION}, ("False", Reason.NOT_ACCEPTED, "see the condition Ready")),
        (
            {"autoscaling": {"enabled": True, "dryRun": True}}, {"autoscaler": AutoscalerState(SCALED)},
            ("False", Reason.DRY_RUN, "spec.autoscaling.dryRun is true"),
        ),
        (
            {"autoscaling": {"enabled": True}, "suspend": True}, {"autoscaler": AutoscalerState(SCALED)},
            ("False", Reason.SUSPENDED, "spec.suspend is true"),
        ),
        (
            {"autoscaling": {"enabled": True}}, {},
            ("Unknown", Reason.METRICS_UNKNOWN, "the autoscaler has not measured the group yet"),
        ),
        (
            {"autoscaling": {"enabled": True}}, {"autoscaler": AutoscalerState(SCALED, "no sidecar of the group reports")},
            ("Unknown", Reason.METRICS_UNKNOWN, "no sidecar of the group reports"),
        ),
        ({"autoscaling": {"enabled": True}}, {"autoscaler": AutoscalerState(SCALED)}, ("True", Reason.METRICS_KNOWN, "")),
    ],
)  # fmt: skip
def test_scaling_is_active_only_while_rota_may_scale_and_knows_the_load(
    spec: Json, changes: Json, expected: tuple[str, Reason, str]
) -> None:
    found = condition(status(spec, **{"decision": AUTOSCALED, **changes}), "ScalingActive")
    assert (found.status, found.reason, found.message) == expected


def test_the_record_of_the_autoscaler_stays_until_the_next_leader_has_its_own_and_goes_with_the_autoscaler() -> (
    None
):
    enabled, former = (
        {"autoscaling": {"enabled": True}},
        ConsumerGroupStatus(scaling=Scaling(recommendation=5)),
    )
    assert status(enabled, former=former).scaling == former.scaling
    assert status(enabled, former=former, autoscaler=AutoscalerState(SCALED)).scaling == SCALED
    assert status({}, former=former).scaling == Scaling()


def test_a_deleted_group_says_what_it_waits_for() -> None:
    deleted = inputs().resource
    deleted = {**deleted, "metadata": {**deleted["metadata"], "deletionTimestamp": "x"}}
    remark = Remark(ConditionType.READY, Reason.WAITING_FOR_MEMBERS, "waiting for 2 members")
    ready = condition(status(resource=deleted, decision=replace(DECISION, remarks=(remark,))), "Ready")
    assert (ready.reason, ready.message) == (Reason.DELETING, "WaitingForMembers: waiting for 2 members")


def test_pods_that_are_refused_are_remarked_also_while_the_others_make_progress() -> None:
    ready = condition(status(pods=replace(REFUSED_PODS, ready=1)), "Ready")
    assert (ready.status, "PodsRefused: pods " in ready.message) == ("True", True)


def test_the_pods_of_a_workload_are_in_its_status() -> None:
    assert pods_of({}) == Pods(0, 0)
    conditions = [
        {"type": "Available", "status": "True", "message": "a"},
        {"type": "ReplicaFailure", "status": "True", "message": "quota"},
    ]
    assert pods_of({"status": {"replicas": 3, "readyReplicas": 1, "conditions": conditions}}) == Pods(
        3, 1, "quota"
    )


@pytest.mark.parametrize(
    ("view", "pods", "expected", "reason"),
    [
        (of_kafka(member("orders-a"), member("orders-b")), Pods(2, 2), "True", Reason.PARTITIONS_PROGRESS),
        (of_kafka(member("orders-a"), member("orders-b")), Pods(3, 2), "Unknown", Reason.SIDECAR_SILENT),
        (of_kafka(member("orders-a"), member("orders-b", state="Unknown", generation=None)), Pods(2, 2), "Unknown", Reason.SIDECAR_SILENT),
        (of_kafka(), Pods(2, 2), "Unknown", Reason.SIDECAR_SILENT),
    ],
)  # fmt: skip
def test_a_group_on_kafka_is_known_by_its_reports(
    view: GroupView, pods: Pods, expected: str, reason: Reason
) -> None:
    ready = condition(status(group=view, pods=pods, decision=ON_KAFKA), "Ready")
    assert (ready.status, ready.reason) == (expected, reason), ready.message


def test_a_group_on_kafka_without_reports_says_what_the_operator_lacks() -> None:
    problem = "the operator has no credentials for the group's Kafka cluster"
    view = replace(of_kafka(), partitions=(), lag_records=None, lag_seconds=None)
    found = status(group=view, decision=ON_KAFKA, kafka_problem=problem)
    for kind in ("Ready", "Rebalancing"):
        shown = condition(found, kind)
        assert (shown.status, shown.message) == ("Unknown", f"no sidecar of the group reports; {problem}")
    assert (condition(found, "Lagging").status, condition(found, "Lagging").message) == ("Unknown", problem)
    assert (found.members, found.lag.total) == (None, None)


def test_a_group_on_kafka_that_the_brokers_describe_is_known_without_members() -> None:
    partitions = tuple(partition(number, owner=None) for number in range(4))
    view = group(state="Empty", generation=None, members=(), partitions=partitions)
    found = status(group=view, pods=Pods(0, 0), decision=replace(ON_KAFKA, desired_replicas=0))
    assert (condition(found, "Ready").reason, found.phase) == (Reason.SCALED_TO_ZERO, "Idle")
    assert (found.members, found.partitions, found.unowned_partitions, found.lag.total) == (0, 4, 4, 40)
    found = status(group=view, pods=Pods(2, 0), decision=ON_KAFKA)
    assert (condition(found, "Ready").status, condition(found, "Ready").reason) == (
        "False",
        Reason.NO_MEMBERS,
    )


def test_a_group_on_kafka_rebalances_while_its_members_are_in_different_generations() -> None:
    for other, expected in ((3, "False"), (4, "True")):
        view = of_kafka(member("orders-a"), member("orders-b", generation=other))
        assert condition(status(group=view, decision=ON_KAFKA), "Rebalancing").status == expected


def test_partitions_of_topics_that_are_not_subscribed_any_more_do_not_count() -> None:
    former = partition(0, topic="payments", owner=None, lag_records=None, lag_seconds=None)
    found = status(group=group(partitions=(*map(partition, range(4)), former)))
    assert (condition(found, "Ready").status, found.partitions, found.unowned_partitions) == ("True", 4, 0)
    assert (found.lag.total, found.lag.max_seconds) == (40, 1)
    found = status(
        {"topics": None, "topicPattern": "orders|pay.*"},
        group=group(partitions=(*map(partition, range(4)), former)),
    )
    assert (condition(found, "Ready").reason, found.unowned_partitions) == (Reason.PARTITIONS_UNOWNED, 1)


def test_every_reason_is_documented() -> None:
    assert {each.reason for each in DOCUMENTED} == set(Reason)
    assert {each.type for each in DOCUMENTED} == set(ConditionType)
    assert all(each.meaning.endswith(".") for each in DOCUMENTED)
    assert len({each[:3] for each in DOCUMENTED}) == len(DOCUMENTED)


PARTITIONS = st.builds(
    lambda number, owner, lag, seconds: partition(
        number, owner=owner, lag_records=lag, lag_seconds=None if lag is None else seconds
    ),
    st.integers(0, 3),
    st.sampled_from(["orders-a", "orders-b", "gone", None]),
    st.sampled_from([None, 0, 7]),
    st.sampled_from([0.0, 500.0]),
)
MEMBERS = st.builds(
    lambda name, state: member(
        name, state=state, generation=None if state in ("Unknown", OTHER_CLIENT) else 3
    ),
    st.sampled_from(["orders-a", "orders-b"]),
    st.sampled_from(["Stable", "Joining", "Unknown", OTHER_CLIENT]),
)
GROUPS = st.none() | st.builds(
    lambda state, members, partitions, left_out: group(
        state=state, members=tuple(members), partitions=tuple(partitions), partitions_left_out=left_out
    ),
    st.sampled_from(["Stable", "Empty", "PreparingRebalance", "Unknown"]),
    st.lists(MEMBERS, max_size=2, unique_by=lambda each: each.name),
    st.lists(PARTITIONS, max_size=4, unique_by=lambda each: each.partition),
    st.sampled_from([0, 0, 3]),
)
PROGRESS = st.dictionaries(
    st.builds(reported, st.integers(0, 3), st.sampled_from(["orders-a", "orders-b"])),
    st.builds(
        Progress, st.sampled_from([None, NOW_MS, NOW_MS - 200_000]), st.sampled_from(["", "it failed"])
    ),
)


@settings(max_examples=500)
@given(
    GROUPS,
    PROGRESS,
    st.none() | st.sampled_from([Pods(0, 0), Pods(2, 2), REFUSED_PODS]),
    st.sampled_from([DECISION, IDLE, ON_KAFKA]),
    st.sampled_from([{}, {"suspend": True}, {"topics": 7}]),
)
def test_whatever_is_seen_conditions_are_documented_and_ready_is_earned(
    view: GroupView | None, made: Any, pods: Pods | None, decision: Any, spec: Json  # noqa: ANN401
) -> None:  # fmt: skip
    found = status(spec, group=view, progress=made, pods=pods, decision=decision)
    documented = {(each.type, text, each.reason) for each in DOCUMENTED for text in each.statuses.split(", ")}
    assert {(each.type, each.status, each.reason) for each in found.conditions} <= documented
    if condition(found, "Ready").status == "True":
        assert view is not None
        assert view.partitions
        assert condition(found, "Stuck").status == "False"
        names = {each.name for each in view.members if each.state == "Stable" or each.state == "Joining"}
        assert all(each.owner in names for each in view.partitions)
        assert all(
            each.lag_records == 0
            or made[reported(each.partition, each.owner or "")].last_progress_ms == NOW_MS
            for each in view.partitions
        )


def test_sidecars_of_other_versions_are_named_in_a_remark_and_nothing_is_false_by_them() -> None:
    versions = {"orders-a": "0.2.0", "orders-b": "0.1.0", "orders-c": "", "orders-d": "0.3.0"}
    found = condition(status(sidecars=Sidecars("0.2.0", versions)), "Ready")
    assert found.status == "True"
    assert "SidecarVersion: the operator's version is 0.2.0" in found.message
    assert "orders-b 0.1.0; orders-c (unknown); orders-d 0.3.0" in found.message
    assert "orders-a" not in found.message
    assert (
        "SidecarVersion"
        not in condition(status(sidecars=Sidecars("0.2.0", {"orders-a": "0.2.0"})), "Ready").message
    )
