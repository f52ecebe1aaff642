"""
The number of pods of a workload: who decides on it, what an autoscaler needs of the workload, which pods it may remove.

Called by `plan`, and by the shell of the autoscaler in a cluster.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota_operator.autoscaling.scale_down import Candidate, VictimOrder
from rota_operator.overview.view import GroupView
from rota_operator.reconcile.observed import Object, Observed, WorkloadRef
from rota_operator.reconcile.target import ref_of, replicas_of, resource_version
from rota_operator.spec.model import ConsumerGroupSpec

# On a pod: a ReplicaSet removes those with the lowest cost first, among pods that are equally ready.
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
# The lowest one there is; another client's costs are left alone.
VICTIM_COST = "-2147483648"
# Owner of the HorizontalPodAutoscalers that KEDA creates.
SCALED_OBJECT = "ScaledObject"
STATEFUL_SET = "StatefulSet"
ENDED_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class ScaleTarget:
    """A workload at one resource version, as far as its number of pods is concerned."""

    workload: WorkloadRef
    replicas: int
    is_rolling_out: bool
    resource_version: str

    @property
    def order(self) -> VictimOrder:
        """The pods that the workload's controller removes first."""
        is_ordered = self.workload.kind == STATEFUL_SET
        return VictimOrder.HIGHEST_ORDINAL if is_ordered else VictimOrder.FEWEST_PARTITIONS

    @property
    def text(self) -> str:
        """Kind and name."""
        return f"{self.workload.kind} {self.workload.name}"


def scale_target_of(workload: Object) -> ScaleTarget:
    """Return what an autoscaler needs of a workload."""
    return ScaleTarget(
        ref_of(workload), replicas_of(workload), is_rolling_out(workload), resource_version(workload)
    )


def is_rolling_out(workload: Object) -> bool:
    """
    Return whether pods of an older template run, or the controller has not looked at the newest one yet.

    Pods that are not ready do not make a rollout: one that drains is not.
    """
    status: Mapping[str, Any] = workload.get("status") or {}
    if (status.get("observedGeneration") or 0) < workload["metadata"].get("generation", 0):
        return True
    pods, updated = status.get("replicas") or 0, status.get("updatedReplicas") or 0
    if workload["kind"] != STATEFUL_SET:
        return updated < pods
    strategy = workload["spec"].get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete" or status.get("currentRevision") == status.get("updateRevision"):
        return False
    kept = (strategy.get("rollingUpdate") or {}).get("partition") or 0
    return updated < pods - kept


def is_autoscaled(observed: Observed, spec: ConsumerGroupSpec) -> bool:
    """Return whether Rota's autoscaler looks at the group: it is enabled, and no other one scales the group or its workload."""
    return spec.autoscaling.enabled and not observed.autoscalers and not observed.group_autoscalers


def applied_replicas(observed: Observed, spec: ConsumerGroupSpec) -> int | None:
    """
    Return the number of pods that the plan applies; None: the workload keeps its own.

    An autoscaler of the workload has its own number. So has Rota's, once its first decision is in the status: the number in the spec
    is the initial one.
    """
    if observed.autoscalers:
        return None
    status = observed.resource.get("status") or {}
    has_decided = bool((status.get("scaling") or {}).get("decisions"))
    if is_autoscaled(observed, spec) and not spec.autoscaling.dry_run and has_decided:
        return None
    return spec.replicas


def autoscaler_name(autoscaler: Object) -> str:
    """Return the name of a HorizontalPodAutoscaler, with that of the ScaledObject that KEDA has created it for."""
    metadata = autoscaler["metadata"]
    owner = next(
        (each["name"] for each in metadata.get("ownerReferences") or () if each.get("kind") == SCALED_OBJECT),
        "",
    )
    return f"{metadata['name']} of {SCALED_OBJECT} {owner}" if owner else str(metadata["name"])


def candidates_of(pods: Sequence[Object], view: GroupView) -> Iterator[Candidate]:
    """Yield the pods that may be removed: those that have not ended, and are not about to."""
    members = {each.name: each for each in view.members if each.member_id is not None}
    for pod in pods:
        name = pod["metadata"]["name"]
        is_ending = "deletionTimestamp" in pod["metadata"]
        if is_ending or (pod.get("status") or {}).get("phase") in ENDED_PHASES:
            continue
        member = members.get(name)
        owned, in_flight = (0, 0) if member is None else (len(member.partitions), member.in_flight or 0)
        yield Candidate(name, ordinal_of(name), owned, in_flight)


def ordinal_of(pod: str) -> int:
    """Return the ordinal of a pod of a StatefulSet; 0 for one of a Deployment, which has none."""
    number = pod.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdecimal() else 0


def has_victim_cost(pod: Object) -> bool:
    """Return whether a pod was a victim: of a scale-down that was given up, or that an operator has not ended."""
    return (pod["metadata"].get("annotations") or {}).get(DELETION_COST) == VICTIM_COST
