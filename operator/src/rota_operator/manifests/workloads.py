"""
The part of Kubernetes' workloads that local processes support.

Fields about machines, images and networks are ignored; unknown fields are rejected, because a typo would be ignored too.
"""

from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from rota_operator.spec.names import (
    ContainerName,
    DataKey,
    LabelKey,
    LabelValue,
    Namespace,
    ResourceName,
    VariableName,
    VariablePrefix,
)
from rota_operator.spec.scalars import NonNegativeInt
from rota_operator.spec.schema import SpecModel, ValidationRule

Element = TypeVar("Element")
# A value that has passed one of our validators is a tuple, which JSON mode would reject.
ListOf = Annotated[tuple[Element, ...], Strict(strict=False)]


class KubernetesPart(SpecModel):
    """Base of models with fields that are ignored, and fields that are rejected as unsupported."""

    ignored_fields: ClassVar[frozenset[str]] = frozenset()
    unsupported_fields: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _drop_ignored_fields(cls, written: object) -> object:
        if not isinstance(written, dict):
            return written
        for name in sorted(cls.unsupported_fields & written.keys()):
            wrong = f"must not set {name}, which local processes do not support; remove it or run this in a cluster"
            raise PydanticCustomError("rule", "{wrong}", {"wrong": wrong})
        return {name: value for name, value in written.items() if name not in cls.ignored_fields}


class KeySelector(SpecModel):
    """Reference to a key of a Secret or ConfigMap."""

    name: ResourceName
    key: DataKey
    optional: bool = Field(default=False)


class FieldSelector(SpecModel):
    """Reference to a field of the pod."""

    api_version: Literal["v1"] = Field(default="v1")
    field_path: Literal[
        "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "status.podIP"
    ]


class EnvVarSource(SpecModel):
    """Source of a variable's value; exactly one field is set."""

    secret_key_ref: KeySelector | None = Field(default=None)
    config_map_key_ref: KeySelector | None = Field(default=None)
    field_ref: FieldSelector | None = Field(default=None)

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "",
            "must set exactly one of secretKeyRef, configMapKeyRef, fieldRef",
            lambda part: len(part.model_fields_set) == 1,
        ),
    )


class EnvVar(SpecModel):
    """An environment variable."""

    name: VariableName
    value: str = Field(default="")
    value_from: EnvVarSource | None = Field(default=None)


class ObjectRef(SpecModel):
    """Reference to a Secret or ConfigMap."""

    name: ResourceName
    optional: bool = Field(default=False)


class EnvFromSource(SpecModel):
    """All keys of a Secret or ConfigMap as environment variables."""

    prefix: VariablePrefix = Field(default="")
    secret_ref: ObjectRef | None = Field(default=None)
    config_map_ref: ObjectRef | None = Field(default=None)


class Container(KubernetesPart):
    """A container, run as a process."""

    ignored_fields: ClassVar[frozenset[str]] = frozenset(
        [
            "image",
            "imagePullPolicy",
            "livenessProbe",
            "ports",
            "readinessProbe",
            "resources",
            "securityContext",
            "startupProbe",
            "terminationMessagePath",
            "terminationMessagePolicy",
        ]
    )
    unsupported_fields: ClassVar[frozenset[str]] = frozenset(["lifecycle", "volumeMounts"])

    name: ContainerName
    command: ListOf[str] = Field(default=())
    args: ListOf[str] = Field(default=())
    env: ListOf[EnvVar] = Field(default=())
    env_from: ListOf[EnvFromSource] = Field(default=())
    working_dir: str = Field(default="")

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "",
            "must set command: local processes have no image to take it from",
            lambda part: bool(part.command),
        ),
    )


class PodSpec(KubernetesPart):
    """The pod of each replica."""

    ignored_fields: ClassVar[frozenset[str]] = frozenset(
        [
            "affinity",
            "automountServiceAccountToken",
            "dnsPolicy",
            "imagePullSecrets",
            "nodeSelector",
            "priorityClassName",
            "restartPolicy",
            "schedulerName",
            "securityContext",
            "serviceAccountName",
            "tolerations",
            "topologySpreadConstraints",
        ]
    )
    unsupported_fields: ClassVar[frozenset[str]] = frozenset(["volumes"])

    containers: ListOf[Container]
    termination_grace_period_seconds: NonNegativeInt = Field(default=30)

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule("", "must have at least one container", lambda part: bool(part.containers)),
    )


class Metadata(KubernetesPart):
    """Metadata of a resource."""

    ignored_fields: ClassVar[frozenset[str]] = frozenset(
        [
            "creationTimestamp",
            "finalizers",
            "generation",
            "managedFields",
            "ownerReferences",
            "resourceVersion",
            "uid",
        ]
    )

    name: ResourceName | None = Field(default=None)
    namespace: Namespace = Field(default="default")
    labels: dict[LabelKey, LabelValue] = Field(default={})
    annotations: dict[LabelKey, str] = Field(default={})


class PodTemplate(SpecModel):
    """Template of a workload's pods."""

    metadata: Metadata = Field(default=Metadata())
    spec: PodSpec


class KeyValueData(KubernetesPart):
    """Data of a Secret or ConfigMap."""

    ignored_fields: ClassVar[frozenset[str]] = frozenset(["immutable", "type"])

    data: dict[DataKey, str] = Field(default={})
    string_data: dict[DataKey, str] = Field(default={})


class WorkloadSpec(KubernetesPart):
    """Spec of a Deployment or StatefulSet."""

    ignored_fields: ClassVar[frozenset[str]] = frozenset(
        [
            "minReadySeconds",
            "podManagementPolicy",
            "progressDeadlineSeconds",
            "revisionHistoryLimit",
            "selector",
            "serviceName",
            "strategy",
            "updateStrategy",
        ]
    )

    replicas: NonNegativeInt = Field(default=1)
    template: PodTemplate
