"""
Builds the server-side apply with which Rota adopts a workload: the fields that it owns, and no other.

Sidecar, volumes and `preStop` are added to the pod template; applying nothing under the same field manager takes them out
again. Lists are sorted, so an unchanged spec gives an equal request.
"""

from typing import NamedTuple

from rota_operator.reconcile.actions import (
    CLAIM_LABEL,
    GRACE_PERIOD_ANNOTATION,
    GRACE_PERIOD_FIELD,
    GROUP_LABEL,
    SETTINGS_ANNOTATION,
    AdoptWorkload,
)
from rota_operator.reconcile.observed import Object
from rota_operator.reconcile.settings import settings_hash
from rota_operator.reconcile.sidecar import (
    APP_SOCKET,
    HTTP_PORT,
    Part,
    SidecarSpec,
    app_mount,
    client_environment,
    container,
    token_mount,
    volumes,
)
from rota_operator.reconcile.target import (
    DEFAULT_GRACE_S,
    Container,
    has_own_pre_stop,
    has_own_variable,
    is_grace_period_confirmed,
    is_grace_period_ours,
    owner_grace_s,
    ref_of,
    resource_version,
    saved_grace_s,
)
from rota_operator.spec.model import ConsumerGroupSpec

# After the drain: the application's SIGTERM, and the sidecar's leaving.
AFTER_DRAIN_S = 15


class GracePeriod(NamedTuple):
    """A grace period that Rota sets, and the owner's that it replaces, unless that is the default."""

    seconds: int | None
    saved: int | None


def adoption(wanted: SidecarSpec, target: Object, app: Container) -> AdoptWorkload:
    """Return the action that adopts a workload; `app` is the container that consumes."""
    grace = grace_period(wanted, target)
    return AdoptWorkload(
        workload=ref_of(target),
        fields=fields(wanted, target, app),
        resource_version=resource_version(target),
        forced=() if grace.seconds is None else (GRACE_PERIOD_FIELD,),
    )


def fields(wanted: SidecarSpec, target: Object, app: Container) -> Part:
    """Return the body of the server-side apply, without a resource version."""
    identity, spec = wanted.group.identity, wanted.group.spec
    labels = {CLAIM_LABEL: identity.uid, GROUP_LABEL: identity.name}
    grace = grace_period(wanted, target)
    annotations = {} if grace.saved is None else {GRACE_PERIOD_ANNOTATION: str(grace.saved)}
    return {
        "apiVersion": target["apiVersion"],
        "kind": target["kind"],
        "metadata": {
            "name": target["metadata"]["name"],
            "namespace": target["metadata"]["namespace"],
            "labels": labels,
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {
            "template": {
                "metadata": {"labels": labels, "annotations": {SETTINGS_ANNOTATION: settings_hash(spec)}},
                "spec": {
                    "containers": [_app_container(wanted, target, app)],
                    "initContainers": [container(wanted, _effective_grace_s(grace, target))],
                    "volumes": volumes(wanted),
                    **_pull_secrets(wanted),
                    **({} if grace.seconds is None else {"terminationGracePeriodSeconds": grace.seconds}),
                },
            }
        },
    }


def grace_period(wanted: SidecarSpec, target: Object) -> GracePeriod:
    """Return the grace period that Rota sets: only if the owner's is too short for the drain."""
    needed_s, owner_s = termination_s(wanted.group.spec), owner_grace_s(target)
    if is_grace_period_ours(target) and not is_grace_period_confirmed(target):
        saved_s = saved_grace_s(target)
        if saved_s is None:
            return GracePeriod(needed_s if owner_s < needed_s else None, None)
        # Never the owner's value, which would be the owner's and ours then: the owner's alone is what Rota need not restore.
        return GracePeriod(max(needed_s, saved_s + 1), saved_s)
    if owner_s >= needed_s:
        return GracePeriod(None, None)
    return GracePeriod(needed_s, None if owner_s == DEFAULT_GRACE_S else owner_s)


def _effective_grace_s(grace: GracePeriod, target: Object) -> int:
    """Return the grace period that the pods have: Rota's, else the owner's."""
    return owner_grace_s(target) if grace.seconds is None else grace.seconds


def termination_s(spec: ConsumerGroupSpec) -> int:
    """Return the time that a pod needs to terminate: the shortest grace period that leaves time for the drain."""
    return spec.sidecar.termination_drain_seconds + AFTER_DRAIN_S


def _app_container(wanted: SidecarSpec, target: Object, app: Container) -> Part:
    """
    Return the fields of the application's container: where the sidecar is, the wait for its drain, and the credentials for Rota's
    servers. Variables that its owner has set stay.
    """
    client = client_environment(wanted.settings)
    own = {name: value for name, value in client.items() if not has_own_variable(app, target, name)}
    found: Part = {
        "name": app["name"],
        "env": [
            {"name": name, "value": value}
            for name, value in sorted({**own, "ROTA_SIDECAR": f"unix://{APP_SOCKET}"}.items())
        ],
        "volumeMounts": [*([token_mount()] if client else []), app_mount()],
    }
    if not has_own_pre_stop(app, target):
        found["lifecycle"] = {"preStop": {"httpGet": {"path": "/drained", "port": HTTP_PORT}}}
    return found


def _pull_secrets(wanted: SidecarSpec) -> Part:
    names = wanted.group.spec.sidecar.image_pull_secrets
    return {"imagePullSecrets": [{"name": name} for name in sorted(set(names))]} if names else {}
