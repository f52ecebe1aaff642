"""
The part of a SparkApplication (sparkoperator.k8s.io/v1beta2) that local processes support, from the template of a ConsumerGroup.

An application becomes a workload whose container runs `spark-submit --master local[N]`: driver and executors are one process.
Fields about machines, images and the Spark operator are ignored; unknown fields are rejected, because a typo would be ignored too.
"""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import ClassVar, Literal

from pydantic import Field

from rota_operator.manifests.workloads import (
    Container,
    EnvFromSource,
    EnvVar,
    KubernetesPart,
    ListOf,
    PodSpec,
    PodTemplate,
    WorkloadSpec,
)
from rota_operator.spec.names import DataKey, ResourceName, VariableName
from rota_operator.spec.scalars import PositiveInt
from rota_operator.spec.schema import SpecModel, ValidationRule
from rota_operator.spec.validation import Path, parse_model
from rota_operator.spec.workload import Spark

KIND = "SparkApplication"
TEMPLATE: Path = ("spec", "spark", "template", "spec")
# Path of a file within the image.
LOCAL = "local:///"
# Of Spark on Kubernetes alone.
CLUSTER_PROPERTIES = "spark.kubernetes."


class SecretKey(SpecModel):
    """Reference of the Spark operator to a key of a Secret."""

    name: ResourceName
    key: DataKey


class SparkPod(KubernetesPart):
    """The pod of a driver, or of each executor."""

    ignored_fields: ClassVar[frozenset[str]] = frozenset(
        [
            "affinity",
            "annotations",
            "coreLimit",
            "coreRequest",
            "deleteOnTermination",
            "image",
            "labels",
            "lifecycle",
            "memory",
            "memoryLimit",
            "memoryOverhead",
            "nodeSelector",
            "podSecurityContext",
            "priorityClassName",
            "schedulerName",
            "securityContext",
            "serviceAccount",
            "serviceAnnotations",
            "serviceLabels",
            "template",
            "terminationGracePeriodSeconds",
            "tolerations",
        ]
    )
    unsupported_fields: ClassVar[frozenset[str]] = frozenset(
        ["configMaps", "envVars", "initContainers", "javaOptions", "secrets", "sidecars", "volumeMounts"]
    )

    cores: PositiveInt = Field(default=1)
    env: ListOf[EnvVar] = Field(default=())
    env_from: ListOf[EnvFromSource] = Field(default=())
    env_secret_key_refs: dict[VariableName, SecretKey] = Field(default={})

    @property
    def variables(self) -> Iterator[EnvVar]:
        """Yield all variables."""
        yield from self.env
        for name, reference in self.env_secret_key_refs.items():
            selector = {"name": reference.name, "key": reference.key}
            yield EnvVar.model_validate({"name": name, "valueFrom": {"secretKeyRef": selector}})


class Executor(SparkPod):
    """The pods of the executors."""

    instances: PositiveInt = Field(default=1)


class SparkApplicationSpec(KubernetesPart):
    """Spec of a SparkApplication in Python."""

    ignored_fields: ClassVar[frozenset[str]] = frozenset(
        [
            "batchScheduler",
            "batchSchedulerOptions",
            "driverPodDisruptionBudget",
            "dynamicAllocation",
            "failureRetries",
            "image",
            "imagePullPolicy",
            "imagePullSecrets",
            "memoryOverheadFactor",
            "mode",
            "monitoring",
            "nodeSelector",
            "pythonVersion",
            "restartPolicy",
            "retryInterval",
            "sparkUIOptions",
            "sparkVersion",
            "timeToLiveSeconds",
        ]
    )
    unsupported_fields: ClassVar[frozenset[str]] = frozenset(
        [
            "deps",
            "hadoopConf",
            "hadoopConfigMap",
            "mainClass",
            "proxyUser",
            "sparkConfigMap",
            "suspend",
            "volumes",
        ]
    )

    type: Literal["Python"]
    main_application_file: str
    arguments: ListOf[str] = Field(default=())
    spark_conf: dict[str, str] = Field(default={})
    driver: SparkPod = Field(default=SparkPod())
    executor: Executor = Field(default=Executor())

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "",
            f"must have a mainApplicationFile that begins with {LOCAL}: on this machine the file of that name in the manifest's "
            "folder runs",
            lambda part: part.main_application_file.startswith(LOCAL),
        ),
    )


def spark_workload_spec(name: str, spark: Spark) -> WorkloadSpec:
    """Return the workload of a group's SparkApplications: one replica for each. Raises InvalidSpec."""
    assert spark.template is not None, "an enabled group has a template"
    given = parse_model(SparkApplicationSpec, spark.template.spec, TEMPLATE)
    container = Container.model_validate(
        {
            "name": "spark",
            "command": tuple(_command(name, given)),
            "env": _variables(given),
            "envFrom": (*given.executor.env_from, *given.driver.env_from),
        }
    )
    return WorkloadSpec(replicas=1, template=PodTemplate(spec=PodSpec(containers=(container,))))


def applications_for(partitions: int, spark: Spark) -> int:
    """Return how many applications a group with so many partitions has; at least one."""
    return max(1, spark.needed_applications(partitions))


def _command(name: str, given: SparkApplicationSpec) -> Iterator[str]:
    tasks = given.executor.instances * given.executor.cores
    yield from ("spark-submit", "--master", f"local[{tasks}]", "--name", name)
    for key, value in sorted(given.spark_conf.items()):
        if not key.startswith(CLUSTER_PROPERTIES):
            yield from ("--conf", f"{key}={value}")
    yield PurePosixPath(given.main_application_file).name
    yield from given.arguments


def _variables(given: SparkApplicationSpec) -> Sequence[EnvVar]:
    """Return the variables of both pods, whose processes are one here: the driver's takes precedence."""
    # Spark's pages and ports are for this machine only.
    found = {"SPARK_LOCAL_IP": EnvVar(name="SPARK_LOCAL_IP", value="127.0.0.1")}
    return tuple(
        (
            found | {each.name: each for pod in (given.executor, given.driver) for each in pod.variables}
        ).values()
    )
