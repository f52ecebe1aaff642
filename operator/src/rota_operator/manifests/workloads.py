"""
The part of Kubernetes' workloads that means something where there are processes instead of pods.

What only concerns machines, images and networks is known and passed over; what nobody here knows is refused, since a typo
in it would be passed over too.
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
from rota_operator.spec.scalars import Count
from rota_operator.spec.schema import Part, Rule

Element = TypeVar("Element")
# What passed a validator of ours is no JSON any more, whose lists would be taken.
Many = Annotated[tuple[Element, ...], Strict(strict=False)]


class KubernetesPart(Part):
    """A part of which some fields are passed over, and some are refused."""

    passed_over: ClassVar[frozenset[str]] = frozenset()
    refused: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _without_what_is_not_for_processes(cls, written: object) -> object:
        if not isinstance(written, dict):
            return written
        for name in sorted(cls.refused & written.keys()):
            wrong = f"must not set {name}, which local processes do not support; remove it or run this in a cluster"
            raise PydanticCustomError("rule", "{wrong}", {"wrong": wrong})
        return {name: value for name, value in written.items() if name not in cls.passed_over}


class KeyOf(Part):
    """A key of a Secret or a ConfigMap."""

    name: ResourceName
    key: DataKey
    optional: bool = Field(default=False)


class FieldOf(Part):
    """Something of the pod itself."""

    api_version: Literal["v1"] = Field(default="v1")
    field_path: Literal[
        "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "status.podIP"
    ]


class ValueFrom(Part):
    """Where a variable's value is: one of these."""

    secret_key_ref: KeyOf | None = Field(default=None)
    config_map_key_ref: KeyOf | None = Field(default=None)
    field_ref: FieldOf | None = Field(default=None)

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "",
            "must set exactly one of secretKeyRef, configMapKeyRef, fieldRef",
            lambda part: len(part.model_fields_set) == 1,
        ),
    )


class Variable(Part):
    """One variable of the environment."""

    name: VariableName
    value: str = Field(default="")
    value_from: ValueFrom | None = Field(default=None)


class NameOf(Part):
    """A Secret or a ConfigMap."""

    name: ResourceName
    optional: bool = Field(default=False)


class VariablesFrom(Part):
    """All keys of a Secret or a ConfigMap."""

    prefix: VariablePrefix = Field(default="")
    secret_ref: NameOf | None = Field(default=None)
    config_map_ref: NameOf | None = Field(default=None)


class Container(KubernetesPart):
    """What a process runs."""

    passed_over: ClassVar[frozenset[str]] = frozenset(
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
    refused: ClassVar[frozenset[str]] = frozenset(["lifecycle", "volumeMounts"])

    name: ContainerName
    command: Many[str] = Field(default=())
    args: Many[str] = Field(default=())
    env: Many[Variable] = Field(default=())
    env_from: Many[VariablesFrom] = Field(default=())
    working_dir: str = Field(default="")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "",
            "must set command: local processes have no image to take it from",
            lambda part: bool(part.command),
        ),
    )


class PodSpec(KubernetesPart):
    """What a replica is."""

    passed_over: ClassVar[frozenset[str]] = frozenset(
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
    refused: ClassVar[frozenset[str]] = frozenset(["volumes"])

    containers: Many[Container]
    termination_grace_period_seconds: Count = Field(default=30)

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("", "must have at least one container", lambda part: bool(part.containers)),
    )


class Metadata(KubernetesPart):
    """Of whatever has a name."""

    passed_over: ClassVar[frozenset[str]] = frozenset(
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


class PodTemplate(Part):
    """What all replicas are."""

    metadata: Metadata = Field(default=Metadata())
    spec: PodSpec


class Texts(KubernetesPart):
    """What a Secret or a ConfigMap holds."""

    passed_over: ClassVar[frozenset[str]] = frozenset(["immutable", "type"])

    data: dict[DataKey, str] = Field(default={})
    string_data: dict[DataKey, str] = Field(default={})


class WorkloadSpec(KubernetesPart):
    """Replicas of one pod."""

    passed_over: ClassVar[frozenset[str]] = frozenset(
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

    replicas: Count = Field(default=1)
    template: PodTemplate
