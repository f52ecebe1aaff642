"""Obstacles to pods that come and go without a loss are said in remarks, and the group runs."""

from typing import Any

import pytest

from rota_operator.reconcile.observed import WorkloadRef
from rota_operator.reconcile.rollouts import resolved
from rota_operator.spec.conditions import Reason
from tests.operator.reconcile.api_server import Stored
from tests.operator.reconcile.worlds import ORDERS, World, resource, workload

Json = Any
PAYMENTS = WorkloadRef("StatefulSet", "payments")


def remarks(world: World) -> list[str]:
    """Reasons of the remarks of a plan that refuses nothing."""
    decision = world.plan()
    assert decision.refusal is None
    return [each.reason for each in decision.remarks]


def rolling(**limits: int | str) -> Json:
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": limits}}


@pytest.mark.parametrize(
    ("fields", "replicas", "is_named"),
    [
        ({}, 3, False),
        (rolling(maxSurge="100%", maxUnavailable="100%"), 3, True),
        (rolling(maxSurge="100%", maxUnavailable=0), 3, False),
        (rolling(maxUnavailable=3), 3, True),
        (rolling(maxUnavailable=2), 3, False),
        # A percentage is rounded down.
        (rolling(maxUnavailable="99%"), 3, False),
        (rolling(maxSurge=1), 3, False),
        ({"strategy": {"type": "Recreate"}}, 3, True),
        # A single pod has no others that go on.
        ({"strategy": {"type": "Recreate"}}, 1, False),
    ],
)
def test_a_rollout_that_terminates_all_pods_at_once_is_named(
    fields: Json, replicas: int, *, is_named: bool
) -> None:
    world = World(resource(replicas=replicas))
    for name, value in fields.items():
        world.workloads[ORDERS].put(("spec", name), value)
    assert remarks(world) == [Reason.ROLLOUT_STOPS_GROUP] * is_named


@pytest.mark.parametrize(
    ("update", "is_named"),
    [
        (None, False),
        ({"type": "RollingUpdate"}, False),
        ({"type": "OnDelete"}, False),
        # A percentage is rounded up.
        ({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "67%"}}, True),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}, False),
    ],
)
def test_pods_of_a_stateful_set_are_replaced_one_by_one_unless_it_says_otherwise(
    update: Json, *, is_named: bool
) -> None:
    world = World(
        resource(replicas=3, scaleTargetRef={"kind": "StatefulSet", "name": "payments"}),
        workloads={PAYMENTS: Stored(workload(PAYMENTS))},
    )
    if update is not None:
        world.workloads[PAYMENTS].put(("spec", "updateStrategy"), update)
    assert remarks(world) == [Reason.ROLLOUT_STOPS_GROUP] * is_named


@pytest.mark.parametrize(
    ("limit", "is_named"), [(0, True), ("0%", True), (1, False), ("1%", False), ("100%", False)]
)
def test_a_budget_that_permits_no_eviction_is_named(limit: int | str, *, is_named: bool) -> None:
    world = World(resource(podDisruptionBudget={"maxUnavailable": limit}))
    assert remarks(world) == [Reason.EVICTIONS_BLOCKED] * is_named


@pytest.mark.parametrize(("drain_s", "is_named"), [(45, False), (585, False), (586, True)])
def test_a_drain_that_nodes_do_not_wait_for_is_named(drain_s: int, *, is_named: bool) -> None:
    world = World(resource(sidecar={"terminationDrainSeconds": drain_s}))
    assert remarks(world) == [Reason.DRAIN_TIME_LONG] * is_named


def test_a_limit_is_a_number_or_a_percentage() -> None:
    assert resolved(2, 10, rounds_up=True) == 2
    assert (resolved("25%", 10, rounds_up=True), resolved("25%", 10, rounds_up=False)) == (3, 2)
