"""
The Pod Security level "restricted" as a checker of pods, with what Rota asks of its own pods beyond it.

After https://kubernetes.io/docs/concepts/security/pod-security-standards: a field that the pod sets counts for its containers
unless they set it themselves.
"""

from collections.abc import Iterator

from tests.support.helm import Object

VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
HOST_FIELDS = ("hostNetwork", "hostPID", "hostIPC")
PROFILES = ("RuntimeDefault", "Localhost")


def offences(pod: Object) -> Iterator[str]:
    """Yield what the level refuses in a pod, and then what Rota does."""
    spec = pod["spec"]
    yield from (field for field in HOST_FIELDS if spec.get(field))
    for volume in spec.get("volumes", ()):
        yield from (f"volume {volume['name']}: {kind}" for kind in volume.keys() - {"name"} - VOLUMES)
    for container in [*spec.get("initContainers", ()), *spec["containers"]]:
        yield from (
            f"{container['name']}: hostPort" for port in container.get("ports", ()) if "hostPort" in port
        )
        for offence in (*_of_level(spec, container), *_of_rota(spec, container)):
            yield f"{container['name']}: {offence}"
    if spec.get("enableServiceLinks") is not False:
        yield "enableServiceLinks"
    if "automountServiceAccountToken" not in spec:
        yield "automountServiceAccountToken"


def _of_level(spec: Object, container: Object) -> Iterator[str]:
    own = container.get("securityContext", {})
    common = {**spec.get("securityContext", {}), **own}
    if own.get("privileged"):
        yield "privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation"
    if own.get("capabilities", {}).get("drop") != ["ALL"]:
        yield "capabilities.drop"
    if set(own.get("capabilities", {}).get("add", ())) - {"NET_BIND_SERVICE"}:
        yield "capabilities.add"
    if common.get("runAsNonRoot") is not True:
        yield "runAsNonRoot"
    if common.get("runAsUser") == 0:
        yield "runAsUser"
    if common.get("seccompProfile", {}).get("type") not in PROFILES:
        yield "seccompProfile"


def _of_rota(spec: Object, container: Object) -> Iterator[str]:
    own = container.get("securityContext", {})
    common = {**spec.get("securityContext", {}), **own}
    for field in ("runAsUser", "runAsGroup"):
        if not isinstance(common.get(field), int) or common[field] <= 0:
            yield f"{field} by number"
    if own.get("readOnlyRootFilesystem") is not True:
        yield "readOnlyRootFilesystem"
    resources = container.get("resources", {})
    for field in ("requests", "limits"):
        if not {"cpu", "memory"} <= resources.get(field, {}).keys():
            yield f"resources.{field}"
