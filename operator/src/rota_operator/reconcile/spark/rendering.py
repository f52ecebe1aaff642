"""
Makes a SparkApplication from a group's template: the template, and the driver's sidecar in its pod template.

Nothing of the group's assignment is in it: a Spark operator ends and resubmits an application whose spec changes. Lists have one
order, so an unchanged ConsumerGroup gives an equal application, whose hash says whether the one in the cluster is of this template.
"""

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rota_operator.reconcile.actions import CLAIM_LABEL, GROUP_LABEL, SETTINGS_ANNOTATION
from rota_operator.reconcile.adoption import termination_s
from rota_operator.reconcile.settings import HASH_LENGTH, settings_hash
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
from rota_operator.reconcile.spark.kinds import KINDS, KUBEFLOW, SPARK_KIND, SparkKind
from rota_operator.reconcile.target import DEFAULT_GRACE_S

# On a SparkApplication: which rendering it was made from.
TEMPLATE_ANNOTATION = "rota.dev/template-hash"
# On a driver's pod: its SparkApplication.
APPLICATION_LABEL = "rota.dev/spark-application"
# Spark's own name of the driver's container. Of a pod template without it, Spark takes the first container.
DRIVER_CONTAINER = "spark-kubernetes-driver"


# Restart policies of Kubeflow's kind that start another driver, and seconds between its attempts.
RESTARTING = ("Always", "OnFailure")
RETRY_INTERVALS = {"onFailureRetryInterval": 5, "onSubmissionFailureRetryInterval": 5}


class Rendering(NamedTuple):
    """The application of a group's template: all of them differ by their names alone."""

    kind: SparkKind
    # Without name and label of one application.
    spec: Part
    template_hash: str


def rendering(wanted: SidecarSpec) -> Rendering:
    """Render the template of a group whose template has no error."""
    spark = wanted.group.spec.spark
    assert spark.template is not None, "an enabled group has a template"
    kind, spec = KINDS[spark.api_version], copy.deepcopy(spark.template.spec)
    if kind.api_version == KUBEFLOW:
        spec = _with_defaults(spec)
    _put(spec, kind.driver_template, _driver_template(wanted, _at(spec, kind.driver_template)))
    text = json.dumps(spec, sort_keys=True)
    return Rendering(kind, spec, hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH])


def application(wanted: SidecarSpec, rendered: Rendering, name: str) -> Part:
    """Return the body of one SparkApplication, without its owner."""
    identity, spec = wanted.group.identity, copy.deepcopy(rendered.spec)
    labels = _at(spec, (*rendered.kind.driver_template, "metadata", "labels"))
    _put(
        spec,
        (*rendered.kind.driver_template, "metadata", "labels"),
        {**labels, APPLICATION_LABEL: name},
    )
    return {
        "apiVersion": rendered.kind.api_version,
        "kind": SPARK_KIND,
        "metadata": {
            "name": name,
            "namespace": identity.namespace,
            "labels": {CLAIM_LABEL: identity.uid, GROUP_LABEL: identity.name},
            "annotations": {TEMPLATE_ANNOTATION: rendered.template_hash},
        },
        "spec": spec,
    }


def application_name(group: str, number: int) -> str:
    """Return the name of a group's application."""
    return f"{group}-{number}"


def _with_defaults(spec: Part) -> Part:
    """
    Return a spec with the defaults of Kubeflow's webhook that its Spark operator needs.

    Without an interval it never restarts a driver that has failed, and without a mode it submits nothing; a cluster without the webhook
    sets neither.
    """
    policy = spec.get("restartPolicy")
    if isinstance(policy, Mapping) and policy.get("type") in RESTARTING:
        spec = {**spec, "restartPolicy": {**RETRY_INTERVALS, **policy}}
    return {"mode": "cluster", **spec}


def _driver_template(wanted: SidecarSpec, template: Mapping[str, Any]) -> Part:
    identity, spec = wanted.group.identity, wanted.group.spec
    metadata, pod = template.get("metadata") or {}, template.get("spec") or {}
    own_s = pod.get("terminationGracePeriodSeconds")
    grace_s = max(own_s if isinstance(own_s, int) else DEFAULT_GRACE_S, termination_s(spec))
    labels = {CLAIM_LABEL: identity.uid, GROUP_LABEL: identity.name}
    secrets = [{"name": name} for name in sorted(set(spec.sidecar.image_pull_secrets))]
    return {
        **template,
        "metadata": {
            **metadata,
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": {**(metadata.get("annotations") or {}), SETTINGS_ANNOTATION: settings_hash(spec)},
        },
        "spec": {
            **pod,
            "containers": _containers(wanted, pod.get("containers") or ()),
            "initContainers": [*(pod.get("initContainers") or ()), container(wanted, grace_s)],
            "volumes": _merged(pod.get("volumes") or (), volumes(wanted)),
            "terminationGracePeriodSeconds": grace_s,
            **({"imagePullSecrets": _merged(pod.get("imagePullSecrets") or (), secrets)} if secrets else {}),
        },
    }


def _containers(wanted: SidecarSpec, given: Sequence[Part]) -> Sequence[Part]:
    """Return the containers with the driver's, which gets the sidecar's socket, the wait for its drain, and credentials for Rota's servers."""
    names = [each["name"] for each in given]
    if not given:
        given, names = [{"name": DRIVER_CONTAINER}], [DRIVER_CONTAINER]
    index = names.index(DRIVER_CONTAINER) if DRIVER_CONTAINER in names else 0
    driver = given[index]
    client = client_environment(wanted.settings)
    variables = [
        {"name": name, "value": value}
        for name, value in sorted({**client, "ROTA_SIDECAR": f"unix://{APP_SOCKET}"}.items())
    ]
    mounts = [*([token_mount()] if client else []), app_mount()]
    lifecycle = {"preStop": {"httpGet": {"path": "/drained", "port": HTTP_PORT}}}
    changed = {
        **driver,
        "env": _merged(driver.get("env") or (), variables),
        "volumeMounts": [*(driver.get("volumeMounts") or ()), *mounts],
        # A preStop of the owner's own stays: the driver does not wait for the drain then.
        "lifecycle": {**lifecycle, **(driver.get("lifecycle") or {})},
    }
    return [*given[:index], changed, *given[index + 1 :]]


def _merged(given: Sequence[Part], ours: Sequence[Part]) -> Sequence[Part]:
    """Return both lists; an element of the template stays, whatever its name."""
    names = {each["name"] for each in given}
    return [*given, *(each for each in ours if each["name"] not in names)]


def _at(spec: Part, path: Sequence[str]) -> Part:
    found: Any = spec
    for name in path:
        found = found.get(name) or {}
    return dict(found)


def _put(spec: Part, path: Sequence[str], value: Part) -> None:
    found = spec
    for name in path[:-1]:
        if not found.get(name):
            found[name] = {}
        found = found[name]
    found[path[-1]] = value
