"""A status holds what is known and leaves out the rest; it is written at once when it matters, and otherwise seldom."""

import json
from dataclasses import replace
from typing import Any

import pytest

from rota_operator.overview.view import EventKind, HistoryEvent
from rota_operator.reconcile.decision import Refusal
from rota_operator.spec.conditions import Phase, Reason
from rota_operator.spec.status import ConsumerGroupStatus, LastRebalance
from rota_operator.status.inputs import ApplicationState, Pods
from rota_operator.status.status import (
    PLACEMENTS_MAX,
    WRITE_INTERVAL_MS,
    due,
    read_status,
    status_json,
    status_of,
)
from tests.operator.status.groups import (
    DECISION,
    LATER,
    NOW,
    NOW_MS,
    condition,
    group,
    inputs,
    member,
    partition,
    progress,
    status,
)

Json = Any
RESOURCE = inputs().resource


def test_the_whole_status_of_a_healthy_group() -> None:
    written = status_json(status(cluster_id="a"))
    assert {name: value for name, value in written.items() if name not in ("conditions", "placements")} == {
        "observedGeneration": 1,
        "phase": "Stable",
        "groupId": "shop.orders",
        "coordination": "Rota",
        "clusterId": "a",
        "sidecarImage": "rota-sidecar:1",
        "selector": "app=orders",
        "replicas": 2,
        "readyReplicas": 2,
        "desiredReplicas": 2,
        "members": 2,
        "partitions": 4,
        "unownedPartitions": 0,
        "generation": 3,
        "lag": {"total": 40, "max": 10, "maxSeconds": 1},
    }
    assert written["placements"] == [
        {"podName": name, "memberId": f"{name}-id", "partitions": 2, "lag": 20}
        for name in ("orders-a", "orders-b")
    ]
    assert [(each["type"], each["status"]) for each in written["conditions"]] == [
        ("Ready", "True"),
        ("Rebalancing", "False"),
        ("Lagging", "False"),
        ("Stuck", "False"),
        ("ScalingActive", "False"),
        ("OffsetReset", "False"),
    ]
    assert {each["lastTransitionTime"] for each in written["conditions"]} == {NOW}


def test_what_is_unknown_is_absent_and_never_zero() -> None:
    written = status_json(status(group=None, pods=None, decision=replace(DECISION, desired_replicas=None)))
    assert not {
        "members", "partitions", "unownedPartitions", "generation", "lag", "replicas", "desiredReplicas", "placements"
    } & written.keys()  # fmt: skip
    blind = group(partitions=(partition(0, lag_records=None, lag_seconds=None), partition(1)))
    assert "lag" not in status_json(status(group=blind))
    assert [placement.lag for placement in status(group=blind).placements] == [None, None]


def test_a_status_that_was_written_reads_as_the_same() -> None:
    found = status(cluster_id="a")
    assert read_status({"status": status_json(found)}) == found
    assert read_status({"status": {"of": "another version"}}) == ConsumerGroupStatus()
    assert read_status({}) == ConsumerGroupStatus()


def test_of_a_status_that_a_newer_operator_has_written_an_older_one_keeps_what_it_knows() -> None:
    found = status(cluster_id="a")
    written = json.loads(json.dumps(status_json(found)))
    written["pace"] = {"of": "a newer version"}
    for each in written["conditions"]:
        each["severity"] = "of a newer version"
    assert read_status({"status": written}) == found


def test_the_time_of_a_transition_moves_with_the_status_alone() -> None:
    first = {**RESOURCE, "status": status_json(status())}
    later = status(resource=first, now=LATER, progress=progress(121))
    times = {each.type: each.last_transition_time for each in later.conditions}
    assert times == {
        "Ready": LATER, "Stuck": LATER, "Rebalancing": NOW, "Lagging": NOW, "ScalingActive": NOW, "OffsetReset": NOW,
    }  # fmt: skip
    # The reason alone does not move it.
    unowned = group(partitions=(partition(0, owner=None), *map(partition, range(1, 4))))
    again = status(
        resource={**RESOURCE, "status": status_json(later)}, now="2026-09-22T00:00:00Z", group=unowned
    )
    assert condition(again, "Ready").reason == Reason.PARTITIONS_UNOWNED
    assert condition(again, "Ready").last_transition_time == LATER


def test_the_generation_is_the_one_that_was_observed() -> None:
    resource = {**RESOURCE, "metadata": {**RESOURCE["metadata"], "generation": 7}}
    found = status(resource=resource)
    assert {found.observed_generation, *(each.observed_generation for each in found.conditions)} == {7}


def test_the_cluster_is_pinned_when_it_is_first_known() -> None:
    first = {**RESOURCE, "status": status_json(status(cluster_id="a"))}
    assert [status(resource=first, cluster_id=each).cluster_id for each in ("", "a", "b")] == ["a", "a", "a"]


IDLE = {"decision": replace(DECISION, desired_replicas=0), "pods": Pods(0, 0)}


@pytest.mark.parametrize(
    ("spec", "changes", "phase"),
    [
        ({}, {}, Phase.STABLE),
        ({"suspend": True}, {}, Phase.SUSPENDED),
        ({}, {**IDLE, "group": group(state="Empty", members=())}, Phase.IDLE),
        ({}, {"group": None}, Phase.UNKNOWN),
        ({}, {"group": group(state="PreparingRebalance")}, Phase.REBALANCING),
        ({}, {"group": group(state="Empty", members=())}, Phase.JOINING),
        ({}, {"progress": progress(121)}, Phase.STUCK),
        ({}, {"decision": replace(DECISION, refusal=Refusal(Reason.TARGET_NOT_FOUND, ""))}, Phase.PENDING),
        ({}, {"decision": replace(DECISION, refusal=Refusal(Reason.INVALID_SPEC, ""))}, Phase.REFUSED),
        ({}, {"failure": Refusal(Reason.FIELD_CONFLICT, "")}, Phase.REFUSED),
        ({}, {"failure": Refusal(Reason.UNAVAILABLE, "")}, Phase.STABLE),
        ({"topics": 7}, {"decision": replace(DECISION, refusal=Refusal(Reason.INVALID_SPEC, ""))}, Phase.REFUSED),
        ({}, {"resource": {**RESOURCE, "metadata": {**RESOURCE["metadata"], "deletionTimestamp": NOW}}}, Phase.DELETING),
    ],
)  # fmt: skip
def test_the_phase_is_one_word(spec: Json, changes: Json, phase: Phase) -> None:
    assert status(spec, **changes).phase == phase


def test_at_most_a_hundred_members_are_listed() -> None:
    members = tuple(member(f"orders-{number:03}") for number in range(150))
    found = status(group=group(members=members))
    assert (found.members, len(found.placements)) == (150, PLACEMENTS_MAX)
    assert found.placements[0].pod_name == "orders-000"


def test_a_placement_is_an_application_with_its_driver_or_without() -> None:
    applications = (
        ApplicationState("orders-0", "RUNNING", is_running=True, pod="orders-a"),
        ApplicationState("orders-1", "SUBMITTED", is_running=False, pod="orders-1-driver"),
        ApplicationState("orders-2", "", is_running=False),
    )
    found = status_json(status(applications=applications))["placements"]
    named = [(each["podName"], each.get("application"), each.get("applicationState")) for each in found]
    assert named == [
        ("orders-a", "orders-0", "RUNNING"),
        # A member that is no application: any consumer may be one.
        ("orders-b", None, None),
        ("orders-1-driver", "orders-1", "SUBMITTED"),
        ("", "orders-2", ""),
    ]
    assert [each["partitions"] for each in found] == [2, 2, 0, 0]
    without_group = status(group=None, applications=applications)
    assert [each.application for each in without_group.placements] == ["orders-0", "orders-1", "orders-2"]


def test_the_last_rebalance_outlives_the_operator() -> None:
    event = HistoryEvent(NOW_MS, EventKind.REBALANCE, "orders-b joined", 3, None, 2)
    joined = HistoryEvent(NOW_MS, EventKind.JOINED, "orders-b joined")
    found = status(group=group(history=(joined, event)))
    expected = LastRebalance(reason="orders-b joined", moved_partitions=2)
    assert found.rebalance == expected
    for view in (None, group()):
        later = status_of(inputs(resource={**RESOURCE, "status": status_json(found)}, group=view))
        assert later.rebalance == expected


LAGGING = group(partitions=tuple(partition(number, lag_records=11) for number in range(4)))
STUCK = status(progress=progress(121))


@pytest.mark.parametrize(
    ("changed", "since_write_ms", "due_in_ms"),
    [
        (status(), 0, None),
        (status(), None, None),
        (status(group=LAGGING), 0, WRITE_INTERVAL_MS),
        (status(group=LAGGING), 4_000, WRITE_INTERVAL_MS - 4_000),
        (status(group=LAGGING), 60_000, 0),
        (status(group=LAGGING), None, 0),
        (STUCK, 0, 0),
        (status(cluster_id="a"), 0, 0),
        (status(pods=Pods(2, 1)), 0, WRITE_INTERVAL_MS),
        (status(decision=replace(DECISION, sidecar_image="rota-sidecar:2")), 0, 0),
        (status(decision=replace(DECISION, desired_replicas=3)), 0, 0),
    ],
)
def test_a_status_is_written_at_once_when_a_condition_changes_and_else_seldom(
    changed: ConsumerGroupStatus, since_write_ms: int | None, due_in_ms: int | None
) -> None:
    last_write_ms = None if since_write_ms is None else NOW_MS - since_write_ms
    expected = None if due_in_ms is None else NOW_MS + due_in_ms
    assert due(status(), changed, last_write_ms, NOW_MS) == expected


def test_a_group_at_rest_is_never_written_again_whatever_its_state() -> None:
    for given in ({}, {"progress": progress(121)}, {"group": None}, IDLE):
        first = inputs(**given)
        resource = {**RESOURCE, "status": status_json(status_of(first))}
        former = read_status(resource)
        later = status_of(replace(first, former=former, now=LATER, now_ms=NOW_MS + 1_000))
        assert due(former, later, NOW_MS, NOW_MS + 1_000) is None
