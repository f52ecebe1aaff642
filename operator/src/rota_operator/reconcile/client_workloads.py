"""
Credentials of workloads that belong to no group and connect to Rota's servers themselves, such as producers: those with CLIENT_LABEL.

They get a token, the authority of Rota's servers and two variables, by server-side apply under the same field manager as adoption:
a group that adopts one of them replaces these fields in its own request, and the pods restart once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rota_operator.reconcile.actions import CLAIM_LABEL, ReleaseWorkload
from rota_operator.reconcile.observed import Object, OperatorSettings
from rota_operator.reconcile.ownership import fields_of, is_applied
from rota_operator.reconcile.settings import AUTHORITY_FILE
from rota_operator.reconcile.sidecar import Part, client_environment, token_mount, token_volume
from rota_operator.reconcile.target import has_own_variable, pod_spec_of, ref_of, resource_version

# Set to "true" by the owner of a workload.
CLIENT_LABEL = "rota.dev/client"
# Set by Rota, while the workload has fields of Rota by that.
MANAGED_LABEL = "rota.dev/client-credentials"
# ConfigMap of each namespace with such workloads, which are its owners: it goes with the last of them.
AUTHORITY_NAME = "rota-authority"


@dataclass(frozen=True, slots=True)
class ApplyAuthority:
    """Server-side apply of the ConfigMap with the authority of Rota's servers, with force."""

    name: str
    # The whole body of the request.
    fields: Object


@dataclass(frozen=True, slots=True)
class ApplyClient:
    """Server-side apply, without force, of the fields of a workload that Rota owns. A conflict is reported, not overridden."""

    workload: Object
    # The whole body of the request but for the resource version.
    fields: Object


ClientAction: TypeAlias = ApplyAuthority | ApplyClient | ReleaseWorkload


def plan_clients(
    workloads: Sequence[Object], config_map: Object | None, settings: OperatorSettings
) -> Sequence[ClientAction]:
    """
    Decide for the workloads of one namespace that have one of the two labels; in this order, because pods wait for the ConfigMap.

    Workloads of groups, and those that are being deleted, are left alone.
    """
    own = [each for each in workloads if not _is_left_alone(each)]
    wanted = [each for each in own if settings.authority and _labels(each).get(CLIENT_LABEL) == "true"]
    return [
        *_authority(wanted, config_map, settings),
        *(ApplyClient(each, body) for each in wanted if not is_applied(each, body := fields(each, settings))),
        *(
            ReleaseWorkload(ref_of(each), resource_version(each))
            for each in own
            if _is_released(each, wanted)
        ),
    ]


def fields(workload: Object, settings: OperatorSettings) -> Part:
    """Return the body of the server-side apply, without a resource version; the first container connects to Rota's servers."""
    metadata, app = workload["metadata"], pod_spec_of(workload)["containers"][0]
    variables = client_environment(settings)
    own = {name: value for name, value in variables.items() if not has_own_variable(app, workload, name)}
    container: Part = {"name": app["name"], "volumeMounts": [token_mount()]}
    if own:
        container["env"] = [{"name": name, "value": value} for name, value in sorted(own.items())]
    return {
        "apiVersion": workload["apiVersion"],
        "kind": workload["kind"],
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {MANAGED_LABEL: "true"},
        },
        "spec": {
            "template": {
                "spec": {"containers": [container], "volumes": [token_volume(settings, AUTHORITY_NAME)]}
            }
        },
    }


def _authority(
    wanted: Sequence[Object], config_map: Object | None, settings: OperatorSettings
) -> Iterator[ClientAction]:
    if not wanted:
        return
    owners = [
        {
            "apiVersion": each["apiVersion"],
            "kind": each["kind"],
            "name": each["metadata"]["name"],
            "uid": each["metadata"]["uid"],
        }
        for each in sorted(wanted, key=lambda workload: str(workload["metadata"]["uid"]))
    ]
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": AUTHORITY_NAME,
            "namespace": wanted[0]["metadata"]["namespace"],
            "ownerReferences": owners,
        },
        "data": {AUTHORITY_FILE: settings.authority},
    }
    if config_map is None or not is_applied(config_map, body):
        yield ApplyAuthority(AUTHORITY_NAME, body)


def _is_left_alone(workload: Object) -> bool:
    return CLAIM_LABEL in _labels(workload) or bool(workload["metadata"].get("deletionTimestamp"))


def _is_released(workload: Object, wanted: Sequence[Object]) -> bool:
    return workload not in wanted and MANAGED_LABEL in _labels(workload) and bool(fields_of(workload))


def _labels(workload: Object) -> Object:
    found: Object = workload["metadata"].get("labels") or {}
    return found
