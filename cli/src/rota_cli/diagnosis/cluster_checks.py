"""Checks of `kubectl rota doctor` on what the API server returned: the operator's Lease, ConsumerGroups and pods. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from rota_cli.clusters.kubernetes.resource import ConsumerGroup
from rota_cli.clusters.model import Check, CheckStatus
from rota_cli.diagnosis.resource_changes import describe_condition
from rota_cli.output.units import pluralize

SIDECAR = "rota-sidecar"
ENDED = ("Succeeded", "Failed")
# Of one group; further ones have the same reason in most cases.
PODS_SHOWN = 5
# A Lease that says more is not believed; the operator's has 15 s.
LEASE_S_MAX = 60.0


class LeaseState(NamedTuple):
    """A Lease, as far as its holder matters."""

    # Empty: released, or never held.
    holder: str
    duration_s: float
    # Ms since the epoch, by the holder's clock; None: never renewed.
    renewed_ms: int | None
    version: str

    def is_fresh(self, now_ms: int) -> bool:
        """Return whether it was renewed within its duration, if the clocks of holder and caller agree."""
        return self.renewed_ms is not None and abs(now_ms - self.renewed_ms) <= self.duration_s * 1000


def parse_lease(lease: Mapping[str, Any]) -> LeaseState:
    """Read a Lease."""
    spec = lease.get("spec") or {}
    renewed = spec.get("renewTime")
    return LeaseState(
        str(spec.get("holderIdentity") or ""),
        min(float(spec.get("leaseDurationSeconds") or 0), LEASE_S_MAX),
        int(datetime.fromisoformat(renewed).timestamp() * 1000) if renewed else None,
        str((lease.get("metadata") or {}).get("resourceVersion", "")),
    )


def check_group(group: ConsumerGroup) -> Iterator[Check]:
    """Check the status of a ConsumerGroup."""
    if group.observed_generation is None:
        yield _warning(
            "group",
            f"{group.full_name} has no status: the operator runs elsewhere, or does not watch this namespace",
        )
        return
    if group.observed_generation < group.generation:
        yield _warning("group", f"the operator has not followed the last edit of {group.full_name} yet")
    found = [
        condition
        for kind, good in (("Ready", "True"), ("Stuck", "False"), ("Lagging", "False"))
        if (condition := group.condition(kind)) is not None and condition.status != good
    ]
    for condition in found:
        yield _warning("group", f"{group.full_name}: {describe_condition(condition)}")
    if not found:
        members = (
            "an unknown number of members" if group.members is None else pluralize(group.members, "member")
        )
        yield Check("group", CheckStatus.OK, f"{group.full_name} is ready, with {members}")


def check_pods(group: ConsumerGroup, pods: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    """Check the sidecars of a group's pods; pods that have ended, or are being deleted, are left out."""
    live = [
        each
        for each in pods
        if "deletionTimestamp" not in each["metadata"]
        and (each.get("status") or {}).get("phase") not in ENDED
    ]
    problems = [problem for each in live if (problem := _sidecar_problem(group, each))]
    for problem in problems[:PODS_SHOWN]:
        yield _warning("sidecars", problem)
    if len(problems) > PODS_SHOWN:
        yield _warning(
            "sidecars", f"{pluralize(len(problems) - PODS_SHOWN, 'further pod')} of {group.full_name}"
        )
    if not problems:
        yield Check(
            "sidecars",
            CheckStatus.OK,
            f"{pluralize(len(live), 'pod')} of {group.full_name}, each sidecar ready",
        )


def _sidecar_problem(group: ConsumerGroup, pod: Mapping[str, Any]) -> str | None:
    name = pod["metadata"]["name"]
    containers = [*(pod["spec"].get("initContainers") or ()), *(pod["spec"].get("containers") or ())]
    image = next((str(each.get("image", "")) for each in containers if each["name"] == SIDECAR), None)
    if image is None:
        return f"pod {name} has no sidecar: it is older than the adoption of its workload, whose rollout is not complete"
    status = pod.get("status") or {}
    states = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    state = next((each for each in states if each["name"] == SIDECAR), None)
    if state is None:
        return f"the sidecar of pod {name} has not started (the pod is {status.get('phase', 'Unknown')}): see `kubectl describe pod {name} -n {group.namespace}`"
    waiting = ((state.get("state") or {}).get("waiting") or {}).get("reason")
    if waiting:
        return f"the sidecar of pod {name} waits ({waiting}): see `kubectl describe pod {name} -n {group.namespace}`"
    if not state.get("ready"):
        return f"the sidecar of pod {name} is not ready: see `kubectl logs {name} -c {SIDECAR} -n {group.namespace}`"
    if group.sidecar_image and image != group.sidecar_image:
        return f"the sidecar of pod {name} has image {image}, and the status pins {group.sidecar_image}: a rollout is not complete"
    return None


def _warning(name: str, message: str) -> Check:
    return Check(name, CheckStatus.WARNING, message)
