"""The number of pods: clients that decide on it, rollouts, and pods that may be removed."""

from typing import Any

import pytest

from rota_operator.autoscaling.scale_down import Candidate, VictimOrder
from rota_operator.reconcile import actions as do
from rota_operator.reconcile.observed import WorkloadRef
from rota_operator.reconcile.scaling import (
    VICTIM_COST,
    autoscaler_name,
    candidates_of,
    has_victim_cost,
    is_rolling_out,
    ordinal_of,
    scale_target_of,
)
from rota_operator.spec.conditions import ConditionType, Reason
from tests.operator.reconcile.worlds import ORDERS, World, resource
from tests.operator.status.groups import group, member

Json = Any
DECIDED = {"scaling": {"decisions": [{"reason": "FewSamples"}]}}


def workload(kind: str, status: Json, **spec: Json) -> Json:
    metadata = {"name": "orders", "generation": 7, "resourceVersion": "41"}
    return {"kind": kind, "metadata": metadata, "spec": {"replicas": 3, **spec}, "status": status}


OLD = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "expected"),
    [
        ("Deployment", {}, {}, True),
        ("Deployment", {}, {"observedGeneration": 6, "replicas": 3, "updatedReplicas": 3}, True),
        ("Deployment", {}, {"observedGeneration": 7, "replicas": 3, "updatedReplicas": 3}, False),
        ("Deployment", {}, {"observedGeneration": 7, "replicas": 4, "updatedReplicas": 1}, True),
        ("Deployment", {}, {"observedGeneration": 7, "replicas": 3}, True),
        # One that drains is not ready, and pods that were asked for are not there yet.
        ("Deployment", {}, {"observedGeneration": 7, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1}, False),
        ("Deployment", {}, {"observedGeneration": 7}, False),
        ("StatefulSet", {}, {"observedGeneration": 7, "currentRevision": "a", "updateRevision": "a", "replicas": 3}, False),
        ("StatefulSet", {}, {"observedGeneration": 7, "currentRevision": "a", "updateRevision": "b", "replicas": 3}, True),
        # Two pods are to keep the old template.
        (
            "StatefulSet", {"updateStrategy": OLD},
            {"observedGeneration": 7, "currentRevision": "a", "updateRevision": "b", "replicas": 3, "updatedReplicas": 1}, False,
        ),
        (
            "StatefulSet", {"updateStrategy": {"type": "OnDelete"}},
            {"observedGeneration": 7, "currentRevision": "a", "updateRevision": "b", "replicas": 3}, False,
        ),
    ],
)  # fmt: skip
def test_a_rollout_is_under_way_while_pods_of_an_older_template_run(
    kind: str, spec: Json, status: Json, *, expected: bool
) -> None:
    found = workload(kind, status, **spec)
    assert is_rolling_out(found) is expected
    target = scale_target_of(found)
    assert (target.workload, target.replicas, target.resource_version) == (
        WorkloadRef(kind, "orders"),
        3,
        "41",
    )
    assert target.is_rolling_out is expected
    is_ordered = kind == "StatefulSet"
    assert target.order is (VictimOrder.HIGHEST_ORDINAL if is_ordered else VictimOrder.FEWEST_PARTITIONS)


def test_pods_that_end_are_no_candidates_and_those_without_a_member_own_nothing() -> None:
    view = group(members=(member("orders-a", in_flight=4), member("orders-0", member_id=None)))
    pods: list[Json] = [
        {"metadata": {"name": "orders-a"}, "status": {"phase": "Running"}},
        {"metadata": {"name": "orders-0"}, "status": {"phase": "Pending"}},
        {"metadata": {"name": "orders-12"}},
        {"metadata": {"name": "ending", "deletionTimestamp": "now"}},
        {"metadata": {"name": "evicted"}, "status": {"phase": "Failed"}},
    ]
    assert [*candidates_of(pods, view)] == [
        Candidate("orders-a", 0, 2, 4),
        Candidate("orders-0", 0, 0, 0),
        Candidate("orders-12", 12, 0, 0),
    ]


@pytest.mark.parametrize(
    ("pod", "ordinal"), [("orders-3", 3), ("orders-7f-x9z", 0), ("orders", 0), ("a-²", 0)]
)
def test_the_ordinal_is_the_number_at_the_end_of_the_name(pod: str, ordinal: int) -> None:
    assert ordinal_of(pod) == ordinal


def test_only_the_cost_of_a_victim_is_rotas() -> None:
    for annotations, expected in (({}, False), ({"a": "1"}, False), (None, False)):
        assert has_victim_cost({"metadata": {"annotations": annotations}}) is expected
    name = "controller.kubernetes.io/pod-deletion-cost"
    assert not has_victim_cost({"metadata": {"annotations": {name: "-5"}}})
    assert has_victim_cost({"metadata": {"annotations": {name: VICTIM_COST}}})


def test_an_autoscaler_of_keda_is_named_with_its_scaled_object() -> None:
    owner = {"kind": "ScaledObject", "name": "orders"}
    made = {"metadata": {"name": "keda-hpa-orders", "ownerReferences": [owner]}}
    assert autoscaler_name(made) == "keda-hpa-orders of ScaledObject orders"
    assert autoscaler_name({"metadata": {"name": "mine"}}) == "mine"


def autoscaled(**autoscaling: Json) -> World:
    """An adopted workload of 4 pods, and a group that is to begin with 3 and be scaled by Rota."""
    world = World(resource(replicas=3, autoscaling={"enabled": True, **autoscaling}))
    while len(world.reconcile().actions) > 1:
        pass
    world.workloads[ORDERS].put(("spec", "replicas"), 4)
    return world


def scaled(world: World) -> list[int]:
    return [each.replicas for each in world.plan().actions if isinstance(each, do.ScaleWorkload)]


def test_the_number_in_the_spec_is_applied_until_the_autoscaler_has_decided() -> None:
    world = autoscaled()
    assert (scaled(world), world.plan().desired_replicas, world.plan().is_autoscaled) == ([3], 3, True)
    world.group["status"] |= DECIDED
    assert (scaled(world), world.plan().desired_replicas, world.plan().is_autoscaled) == ([], 4, True)


def test_in_a_dry_run_the_number_in_the_spec_applies() -> None:
    world = autoscaled(dryRun=True)
    world.group["status"] |= DECIDED
    assert (scaled(world), world.plan().is_autoscaled) == ([3], True)


def test_another_autoscaler_of_the_group_keeps_rota_from_scaling_and_is_named() -> None:
    world = autoscaled()
    world.group["status"] |= DECIDED
    world.group_autoscalers = ("theirs",)
    assert (scaled(world), world.plan().is_autoscaled) == ([3], False)
    (remark,) = world.plan().remarks
    assert (remark.condition, remark.reason) == (ConditionType.SCALING_ACTIVE, Reason.FOREIGN_AUTOSCALER)
    assert remark.message.startswith(
        "HorizontalPodAutoscaler theirs scales the ConsumerGroup, so Rota does not"
    )
    world.autoscalers = ("mine",)
    assert (scaled(world), world.plan().is_autoscaled) == ([], False)
    world.edit(autoscaling=None)
    world.autoscalers = ()
    assert world.plan().remarks == ()


def test_no_replicas_at_all_need_access_to_the_groups_kafka_cluster() -> None:
    world = autoscaled(minReplicaCount=0)
    world.kafka_problem = "the operator has no credentials"
    refusal = world.plan().refusal
    assert refusal is not None
    assert refusal.reason == Reason.UNSUPPORTED_FIELD
    assert refusal.message == (
        "spec.autoscaling.minReplicaCount must be 1 or more, because the lag of a group on Kafka without members is unknown: the "
        "operator has no credentials"
    )
    world.kafka_problem = ""
    assert world.plan().refusal is None
