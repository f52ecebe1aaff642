"""
Checks whether a workload can be adopted, and reads from it what adoption depends on.

A target is the workload of `spec.scaleTargetRef`, as the API server returns it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rota_operator.reconcile.actions import GRACE_PERIOD_ANNOTATION
from rota_operator.reconcile.decision import Refusal
from rota_operator.reconcile.observed import Object, WorkloadRef
from rota_operator.reconcile.ownership import element_key, fields_of, has_field
from rota_operator.spec.conditions import Reason
from rota_operator.spec.model import ConsumerGroupSpec

SIDECAR = "rota-sidecar"
# Kubernetes' own default of terminationGracePeriodSeconds.
DEFAULT_GRACE_S = 30
POD_SPEC = ("f:spec", "f:template", "f:spec")
GRACE_PERIOD = "f:terminationGracePeriodSeconds"
# The manifest that client-side `kubectl apply` has applied last.
LAST_APPLIED_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
Container = Mapping[str, Any]


def ref_of(workload: Object) -> WorkloadRef:
    """Return kind and name of a workload."""
    return WorkloadRef(workload["kind"], workload["metadata"]["name"])


def resource_version(workload: Object) -> str:
    """Return the version of a workload that a decision is made on."""
    version: str = workload["metadata"].get("resourceVersion", "")
    return version


def replicas_of(workload: Object) -> int:
    """Return the desired number of pods of a workload."""
    replicas: int | None = workload.get("spec", {}).get("replicas")
    return 1 if replicas is None else replicas


def pod_spec_of(workload: Object) -> Mapping[str, Any]:
    """Return the spec of a workload's pods."""
    found: Mapping[str, Any] = workload.get("spec", {}).get("template", {}).get("spec", {})
    return found


def container_of(spec: ConsumerGroupSpec, target: Object) -> Container | None:
    """Return the container that consumes: the one that spec.sidecar.container names, else the first."""
    containers: Sequence[Container] = pod_spec_of(target).get("containers") or ()
    named = spec.sidecar.container
    return next((each for each in containers if named in ("", each["name"])), None)


def target_problem(spec: ConsumerGroupSpec, target: Object) -> Refusal | None:
    """Return why a workload cannot be adopted."""
    for problem in _problems(spec, target):
        ref = ref_of(target)
        return Refusal(Reason.INVALID_TARGET, f"spec.scaleTargetRef: {ref.kind} {ref.name} {problem}")
    return None


def _problems(spec: ConsumerGroupSpec, target: Object) -> Iterator[str]:
    pod = pod_spec_of(target)
    if pod.get("hostNetwork"):
        yield (
            "uses the host network, where the sidecars of two pods would share their ports; set hostNetwork to false"
        )
    if any(each["name"] == SIDECAR for each in pod.get("containers") or ()):
        yield f"has a container named {SIDECAR}, which is the sidecar's name; rename the container"
    if any(each["name"] == SIDECAR for each in pod.get("initContainers") or ()) and not _is_sidecar_ours(
        target
    ):
        yield f"has an init container named {SIDECAR}, which is the sidecar's name; rename the container"
    if container_of(spec, target) is None:
        names = ", ".join(each["name"] for each in pod.get("containers") or ())
        yield f"has no container {spec.sidecar.container}; set spec.sidecar.container to one of: {names}"


def _is_sidecar_ours(target: Object) -> bool:
    return has_field(
        fields_of(target), *POD_SPEC, "f:initContainers", element_key({"name": SIDECAR}, ("name",))
    )


def sidecar_image_of(target: Object) -> str:
    """Return the image of the sidecar that a workload has; empty: it has none of ours."""
    if not _is_sidecar_ours(target):
        return ""
    containers: Sequence[Container] = pod_spec_of(target).get("initContainers") or ()
    return next((str(each.get("image", "")) for each in containers if each["name"] == SIDECAR), "")


def has_own_pre_stop(container: Container, target: Object) -> bool:
    """Return whether the owner of a workload has given the container a preStop of its own."""
    key = element_key({"name": container["name"]}, ("name",))
    ours = has_field(fields_of(target), *POD_SPEC, "f:containers", key, "f:lifecycle", "f:preStop")
    return not ours and bool((container.get("lifecycle") or {}).get("preStop"))


def has_own_variable(container: Container, target: Object, name: str) -> bool:
    """Return whether the owner of a workload has set an environment variable of the container."""
    key, variable = (
        element_key({"name": container["name"]}, ("name",)),
        element_key({"name": name}, ("name",)),
    )
    ours = has_field(fields_of(target), *POD_SPEC, "f:containers", key, "f:env", variable)
    return not ours and any(each["name"] == name for each in container.get("env") or ())


def owner_grace_s(target: Object) -> int:
    """Return the grace period in seconds that the owner of a workload has set, or that is the default."""
    seconds: int | None = pod_spec_of(target).get("terminationGracePeriodSeconds")
    if not is_grace_period_ours(target) or is_grace_period_confirmed(target):
        return DEFAULT_GRACE_S if seconds is None else seconds
    kept = saved_grace_s(target)
    return DEFAULT_GRACE_S if kept is None else kept


def saved_grace_s(target: Object) -> int | None:
    """Return the grace period that Rota has replaced; None: it was the default, or Rota has replaced none."""
    text = (target["metadata"].get("annotations") or {}).get(GRACE_PERIOD_ANNOTATION, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def manifest_grace_s(target: Object) -> int | None:
    """Return the grace period of the manifest that `kubectl apply` has recorded; None: it has none, or there is no record."""
    recorded = (target["metadata"].get("annotations") or {}).get(LAST_APPLIED_ANNOTATION, "{}")
    try:
        found: Any = json.loads(recorded)
        for name in ("spec", "template", "spec", "terminationGracePeriodSeconds"):
            found = found[name]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, int) else None


def is_grace_period_in_manifest(target: Object) -> bool:
    """Return whether the owner of a workload sets the grace period: `kubectl apply` then sets it again each time."""
    return owner_grace_s(target) != DEFAULT_GRACE_S or manifest_grace_s(target) is not None


def is_grace_period_confirmed(target: Object) -> bool:
    """
    Return whether the owner of a workload has applied the value that Rota had set before: the field is to be the owner's.

    `kubectl apply` changes nothing then, so the API server still knows the field as Rota's.
    """
    live = pod_spec_of(target).get("terminationGracePeriodSeconds")
    return live is not None and is_grace_period_ours(target) and manifest_grace_s(target) == live


def is_grace_period_ours(target: Object) -> bool:
    """Return whether Rota has set the grace period of a workload, and no other client has."""
    managers = [
        fields_v1
        for each in target["metadata"].get("managedFields", ())
        if has_field(fields_v1 := each.get("fieldsV1") or {}, *POD_SPEC, GRACE_PERIOD)
    ]
    return len(managers) == 1 and has_field(fields_of(target), *POD_SPEC, GRACE_PERIOD)
