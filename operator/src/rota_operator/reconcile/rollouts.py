"""
Finds what makes pods of a workload unable to come and go without a loss: rollouts that stop all of them, evictions that are never
allowed, drains that nodes do not wait for.

Called by `plan` for a workload that is adopted. These are remarks and no refusals: Kubernetes allows each of them, and the group
runs.
"""

from collections.abc import Iterator
from typing import Any

from rota_operator.reconcile.decision import Remark
from rota_operator.reconcile.observed import Object
from rota_operator.spec.conditions import ConditionType, Reason
from rota_operator.spec.model import ConsumerGroupSpec

# Defaults of a Deployment; of maxSurge too.
DEFAULT_MAX_UNAVAILABLE = "25%"
# What the cluster-autoscaler gives pods of a node that it removes: its --max-graceful-termination-sec.
NODE_REMOVAL_S = 600


def rollout_remarks(spec: ConsumerGroupSpec, target: Object, replicas: int, grace_s: int) -> Iterator[Remark]:
    """Yield the restrictions of a workload with this number of replicas, whose drain needs a grace period of `grace_s`."""
    if replicas > 1 and stops_all(target, replicas):
        yield Remark(
            ConditionType.READY,
            Reason.ROLLOUT_STOPS_GROUP,
            f"a rollout of {target['kind']} {target['metadata']['name']} terminates all {replicas} pods at the same time, so no "
            "partition has an owner meanwhile; use the strategy RollingUpdate with a smaller maxUnavailable",
        )
    budget = spec.pod_disruption_budget
    if budget is not None and resolved(budget.max_unavailable, replicas=100, rounds_up=True) == 0:
        yield Remark(
            ConditionType.READY,
            Reason.EVICTIONS_BLOCKED,
            f"spec.podDisruptionBudget.maxUnavailable {budget.max_unavailable} permits no eviction, so kubectl drain waits until "
            "the pods are deleted by other means; use 1 or more",
        )
    if grace_s > NODE_REMOVAL_S:
        yield Remark(
            ConditionType.READY,
            Reason.DRAIN_TIME_LONG,
            f"spec.sidecar.terminationDrainSeconds {spec.sidecar.termination_drain_seconds} gives pods {grace_s} s to terminate; "
            f"cluster-autoscaler ends pods of a node that it removes after {NODE_REMOVAL_S} s unless it is set otherwise, and "
            "the records that are then in flight are repeated",
        )


def stops_all(target: Object, replicas: int) -> bool:
    """Return whether a rollout may terminate all pods before it has started others."""
    if target["kind"] == "StatefulSet":
        update = _mapping(target["spec"].get("updateStrategy"))
        # Without the field, pods are replaced one by one.
        limit = _mapping(update.get("rollingUpdate")).get("maxUnavailable", 1)
        return update.get("type") != "OnDelete" and resolved(limit, replicas, rounds_up=True) >= replicas
    strategy = _mapping(target["spec"].get("strategy"))
    if strategy.get("type") == "Recreate":
        return True
    limit = _mapping(strategy.get("rollingUpdate")).get("maxUnavailable", DEFAULT_MAX_UNAVAILABLE)
    return resolved(limit, replicas, rounds_up=False) >= replicas


def resolved(limit: int | str, replicas: int, *, rounds_up: bool) -> int:
    """Return a number of pods that is given as a number or as a percentage of the replicas."""
    if isinstance(limit, int):
        return limit
    hundredfold = int(limit.removesuffix("%")) * replicas
    return -(-hundredfold // 100) if rounds_up else hundredfold // 100


def _mapping(value: Any) -> Any:  # noqa: ANN401  a part of a workload
    return value or {}
