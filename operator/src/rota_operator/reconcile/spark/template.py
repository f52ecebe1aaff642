"""
Says what is wrong with the template of a group's SparkApplications, before any application is made from it.

The operator creates applications with its own rights, so a right to write ConsumerGroups would otherwise be one to have privileged pods. What only the Spark operator can judge, such as a file that does not exist, is its state of the application.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rota_operator.reconcile.spark.kinds import APACHE, KUBEFLOW, SparkKind
from rota_operator.reconcile.target import SIDECAR
from rota_operator.spec.names import SUBDOMAIN
from rota_operator.spec.validation import FieldError, Path

TEMPLATE: Path = ("spec", "spark", "template", "spec")
CONF = "sparkConf"
IMAGE_PROPERTY = "spark.kubernetes.container.image"
NAMESPACE_PROPERTY = "spark.kubernetes.namespace"
ACCOUNT_PROPERTIES = (
    "spark.kubernetes.authenticate.driver.serviceAccountName",
    "spark.kubernetes.authenticate.executor.serviceAccountName",
    "spark.kubernetes.authenticate.serviceAccountName",
)
ACCOUNT_FIELDS = ("serviceAccount", "serviceAccountName")
# By which all applications would have one driver pod, or a driver pod without the sidecar.
OWNED_PROPERTIES = (
    "spark.kubernetes.driver.pod.name",
    "spark.kubernetes.driver.podTemplateContainerName",
    "spark.kubernetes.driver.podTemplateFile",
    "spark.kubernetes.executor.podTemplateFile",
)
# As in spark.kubernetes.driver.volumes.hostPath.data.mount.path.
HOST_PATH_PROPERTY = ".volumes.hostPath."
HOST_FIELDS = ("hostNetwork", "hostPID", "hostIPC", "hostProcess")
VOLUME_PREFIX = "rota-"
# With this value the driver would run in the Spark operator's own pod.
CLIENT_MODES: Mapping[str, tuple[str, str]] = {
    KUBEFLOW: ("mode", "client"),
    APACHE: ("deploymentMode", "ClientMode"),
}
# Below it, the Spark operator of sparkoperator.k8s.io ignores pod templates.
SPARK_VERSION_MIN = 3
SPARK_VERSION = re.compile(r"([0-9]{1,9})\.")


def template_error(template: Mapping[str, Any], kind: SparkKind, namespace: str) -> FieldError | None:
    """Return the first error of a template; `namespace` is the ConsumerGroup's."""
    return next(_errors(template, kind, namespace), None)


def _errors(template: Mapping[str, Any], kind: SparkKind, namespace: str) -> Iterator[FieldError]:
    # The others rely on the shape.
    if (wrong := next(_shape(template, kind), None)) is not None:
        yield FieldError((*TEMPLATE, *wrong[0]), wrong[1])
        return
    for path, message in (
        *_images(template, kind),
        *_privileges(template, ()),
        *_accounts(template, namespace),
        *_conflicts(template, kind),
    ):
        yield FieldError((*TEMPLATE, *path), message)


Errors = Iterator[tuple[Path, str]]


def _shape(template: Mapping[str, Any], kind: SparkKind) -> Errors:
    """Yield what is not of the type that rendering needs; the API server checks the rest."""
    driver, pod = kind.driver_template, (*kind.driver_template, "spec")
    labels = (*driver, "metadata", "labels"), (*driver, "metadata", "annotations")
    for path in (
        (CONF,),
        kind.executor_template[:1],
        driver[:1],
        driver,
        (*driver, "metadata"),
        *labels,
        pod,
    ):
        if not isinstance(value_at(template, path), Mapping):
            yield path, "must be a mapping"
            return
    for name in ("containers", "initContainers", "volumes", "imagePullSecrets"):
        if not _is_list_of_named(value_at(template, (*pod, name))):
            yield (*pod, name), "must be a list of mappings, each with a name"
            return
    for number, each in enumerate(value_at(template, (*pod, "containers"))):
        yield from _container_shape(each, (*pod, "containers", number))


def _container_shape(given: Mapping[str, Any], path: Path) -> Errors:
    if not _is_list_of_named(given.get("env") or ()):
        yield (*path, "env"), "must be a list of mappings, each with a name"
    if not isinstance(given.get("volumeMounts") or (), list | tuple):
        yield (*path, "volumeMounts"), "must be a list"
    if not isinstance(given.get("lifecycle") or {}, Mapping):
        yield (*path, "lifecycle"), "must be a mapping"


def _is_list_of_named(value: object) -> bool:
    return value == {} or (isinstance(value, list | tuple) and all(map(_is_named, value)))


def _is_named(element: object) -> bool:
    return isinstance(element, Mapping) and isinstance(element.get("name"), str)


def _images(template: Mapping[str, Any], kind: SparkKind) -> Errors:
    """Yield an error if the driver or the executors have no image: an image in a pod template does not count for Spark."""
    conf = value_at(template, (CONF,))
    for part in ("driver", "executor"):
        named = [conf.get(IMAGE_PROPERTY), conf.get(f"spark.kubernetes.{part}.container.image")]
        if kind.api_version == KUBEFLOW:
            named += [template.get("image"), value_at(template, (part, "image"))]
        if not any(isinstance(each, str) and each for each in named):
            path = ("image",) if kind.api_version == KUBEFLOW else (CONF, IMAGE_PROPERTY)
            yield path, f"is required: the {part} has no image; set it to an image with Spark and your code"
            return


def _privileges(value: object, path: Path) -> Errors:
    """Yield each field by which a pod would get rights on its node, wherever it is in the template."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            here = (*path, name)
            if (name == "privileged" or name in HOST_FIELDS) and below is True:
                yield here, "must not be true: pods of a group get no rights on their node; remove it"
            elif name == "hostPath" or HOST_PATH_PROPERTY in name:
                yield here, "is not allowed: pods of a group get no rights on their node; use another volume"
            elif name == "capabilities" and isinstance(below, Mapping) and below.get("add"):
                yield (*here, "add"), "is not allowed: pods of a group get no rights on their node; remove it"
            else:
                yield from _privileges(below, here)
    elif isinstance(value, list | tuple):
        for number, below in enumerate(value):
            yield from _privileges(below, (*path, number))


def _accounts(template: Mapping[str, Any], namespace: str) -> Errors:
    """Yield each service account that is not one of the namespace."""
    conf = value_at(template, (CONF,))
    if conf.get(NAMESPACE_PROPERTY, namespace) != namespace:
        yield (
            (CONF, NAMESPACE_PROPERTY),
            f"must be {namespace}, the ConsumerGroup's namespace: drivers do not run under service accounts of others",
        )
    named = [((CONF, name), conf[name]) for name in ACCOUNT_PROPERTIES if name in conf]
    for path, name in (*named, *_account_fields(template, ())):
        if not isinstance(name, str) or re.fullmatch(SUBDOMAIN, name) is None:
            yield (
                path,
                f"must be the name of a service account in namespace {namespace}, without the namespace",
            )


def _account_fields(value: object, path: Path) -> Iterator[tuple[Path, object]]:
    """Yield the fields that name service accounts."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            if name in ACCOUNT_FIELDS:
                yield (*path, name), below
            else:
                yield from _account_fields(below, (*path, name))
    elif isinstance(value, list | tuple):
        for number, below in enumerate(value):
            yield from _account_fields(below, (*path, number))


def _conflicts(template: Mapping[str, Any], kind: SparkKind) -> Errors:
    """Yield what would keep the sidecar out of a driver's pod, or would give applications one pod."""
    mode, client = CLIENT_MODES[kind.api_version]
    if template.get(mode) == client:
        yield (mode,), f"must not be {client}: its driver runs outside of a pod of its own; remove it"
    for name in OWNED_PROPERTIES:
        if name in value_at(template, (CONF,)):
            yield (CONF, name), "is set for each application by itself; remove it"
    if kind.api_version == KUBEFLOW:
        yield from _kubeflow_conflicts(template)
    yield from _name_conflicts(template, (*kind.driver_template, "spec"))


def _name_conflicts(template: Mapping[str, Any], pod: tuple[str, ...]) -> Errors:
    for name in ("containers", "initContainers"):
        for number, each in enumerate(value_at(template, (*pod, name))):
            if each["name"] == SIDECAR:
                yield (*pod, name, number, "name"), f"must not be {SIDECAR}, the sidecar's name; rename it"
    for number, each in enumerate(value_at(template, (*pod, "volumes"))):
        if each["name"].startswith(VOLUME_PREFIX):
            yield (
                (*pod, "volumes", number, "name"),
                f"must not begin with {VOLUME_PREFIX}, as the sidecar's volumes do; rename it",
            )


def _kubeflow_conflicts(template: Mapping[str, Any]) -> Errors:
    if value_at(template, ("driver",)).get("podName"):
        yield ("driver", "podName"), "would be the name of several pods; remove it"
    version = SPARK_VERSION.match(str(template.get("sparkVersion", "")))
    if version is not None and int(version[1]) < SPARK_VERSION_MIN:
        yield (
            ("sparkVersion",),
            f"must be {SPARK_VERSION_MIN}.0.0 or newer: drivers of older ones take no sidecar",
        )


def value_at(template: Mapping[str, Any], path: Sequence[str]) -> Any:  # noqa: ANN401  any JSON value
    """Return the value at a path; an empty mapping where nothing is given."""
    found: Any = template
    for name in path:
        found = found.get(name)
        if found is None:
            return {}
    return found
