"""Fields of `spec` about the workload that consumes: its pods, their sidecars, the number of replicas, SparkApplications."""

import re
from typing import Any, ClassVar, Literal

from pydantic import Field

from rota_operator.spec.names import OptionalContainerName, ResourceName
from rota_operator.spec.scalars import Fraction, IntOrString, NonNegativeInt, PositiveInt
from rota_operator.spec.schema import SpecModel, ValidationRule


class ScaleTargetRef(SpecModel):
    """Reference to the workload that consumes, in the ConsumerGroup's namespace."""

    api_version: Literal["apps/v1"] = Field(default="apps/v1", description="The API version of the workload.")
    kind: Literal["Deployment", "StatefulSet"] = Field(
        default="Deployment", description="The kind of the workload."
    )
    name: ResourceName = Field(description="The name of the workload, in the ConsumerGroup's namespace.")


class Resources(SpecModel):
    """Compute resources of the sidecar container, as in a pod's `resources`."""

    requests: dict[str, str] = Field(
        default={}, description="The minimum amount of compute resources required.", max_length=16
    )
    limits: dict[str, str] = Field(
        default={}, description="The maximum amount of compute resources allowed.", max_length=16
    )


class Sidecar(SpecModel):
    """The sidecar container of each pod."""

    image: str = Field(
        default="",
        description="The sidecar's image. Defaults to the operator's own version, pinned when the ConsumerGroup is created.",
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        default="IfNotPresent", description="When the sidecar's image is pulled, as in a container."
    )
    image_pull_secrets: tuple[ResourceName, ...] = Field(
        default=(),
        max_length=16,
        description="Names of Secrets with which the sidecar's image is pulled, in the ConsumerGroup's namespace.",
    )
    container: OptionalContainerName = Field(
        default="",
        description="The name of the container that consumes. Defaults to the first container of the pod.",
    )
    termination_drain_seconds: PositiveInt = Field(
        default=45,
        description="The maximum time for a terminating pod to finish and commit its in-flight records.",
    )
    resources: Resources = Field(
        default=Resources(requests={"cpu": "50m", "memory": "64Mi"}),
        description="The compute resources of the sidecar container.",
    )


class Fallback(SpecModel):
    """The number of replicas while metrics are missing."""

    failure_threshold: PositiveInt = Field(
        default=3, description="The number of consecutive failed samples after which the fallback applies."
    )
    replicas: NonNegativeInt | None = Field(
        default=None,
        description="The number of replicas while the fallback applies. Defaults to the current number.",
    )


class Autoscaling(SpecModel):
    """Automatic scaling of the workload by arrival rate and backlog."""

    enabled: bool = Field(
        default=False,
        description="Enables autoscaling. spec.replicas is then the initial number of replicas only.",
    )
    min_replica_count: NonNegativeInt = Field(default=1, description="The minimum number of replicas.")
    max_replica_count: PositiveInt = Field(
        default=24,
        description="The maximum number of replicas. The number of partitions is an upper bound as well.",
    )
    polling_interval: PositiveInt = Field(
        default=10, description="The interval between two samples, in seconds."
    )
    min_change_interval_seconds: NonNegativeInt = Field(
        default=300, description="The minimum time between two changes of the number of replicas."
    )
    lag_seconds_target: PositiveInt = Field(
        default=60, description="The target for the age of the oldest uncommitted record, in seconds."
    )
    catch_up_seconds: PositiveInt = Field(
        default=600, description="The time within which a backlog is to be processed."
    )
    target_utilization: Fraction = Field(
        default=0.7, description="The target share of time in which a replica is busy, above 0 and up to 1."
    )
    partition_alignment: Literal["off", "balanced", "even"] = Field(
        default="balanced",
        description="How the number of replicas is fitted to the number of partitions. off: not at all. balanced: the smallest "
        "number with the same maximum of partitions per replica, or the next such number if that one would be busy for more than 90 % of "
        "the time. even: a divisor of the number of partitions.",
    )
    dry_run: bool = Field(
        default=False, description="Report the recommended number of replicas without applying it."
    )
    fallback: Fallback = Field(
        default=Fallback(), description="The number of replicas while metrics are missing."
    )

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "self.minReplicaCount <= self.maxReplicaCount",
            "must have a minReplicaCount less than or equal to maxReplicaCount",
            lambda part: part.min_replica_count <= part.max_replica_count,
        ),
    )


class SparkTemplate(SpecModel):
    """Template of the SparkApplications."""

    spec: dict[str, Any] = Field(
        description="The spec of each SparkApplication. The driver's pod template in it gets the sidecar, and a restart policy of "
        "sparkoperator.k8s.io the seconds between attempts if it has none; everything else is passed on unchanged."
    )


class Spark(SpecModel):
    """SparkApplications as members of the group, instead of a workload's pods."""

    enabled: bool = Field(
        default=False, description="Creates SparkApplications instead of scaling a workload."
    )
    api_version: Literal["sparkoperator.k8s.io/v1beta2", "spark.apache.org/v1"] = Field(
        default="sparkoperator.k8s.io/v1beta2",
        description="The API version of the SparkApplications. Immutable.",
    )
    partitions_per_application: PositiveInt = Field(
        default=12,
        description="The number of partitions per SparkApplication; the number of SparkApplications is rounded up.",
    )
    template: SparkTemplate | None = Field(
        default=None, description="The template of the SparkApplications. Required if enabled."
    )

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "!self.enabled || has(self.template)",
            "must set template.spec if enabled is true",
            lambda part: not part.enabled or part.template is not None,
        ),
    )

    def needed_applications(self, partitions: int) -> int:
        """Return how many SparkApplications so many partitions need."""
        return -(-partitions // self.partitions_per_application)


def _is_count_or_percentage(number_or_share: int | str) -> bool:
    if isinstance(number_or_share, int):
        return number_or_share >= 0
    return re.fullmatch("[0-9]{1,3}%", number_or_share) is not None


class PodDisruptionBudget(SpecModel):
    """Limit of voluntary disruptions, as in a Kubernetes PodDisruptionBudget."""

    max_unavailable: IntOrString = Field(
        default=1,
        description="The maximum number of pods that may be unavailable at once, as a number or a percentage such as 25%.",
    )

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "type(self.maxUnavailable) == int ? self.maxUnavailable >= 0 : "
            "self.maxUnavailable.matches('^[0-9]{1,3}%$')",
            "must have a maxUnavailable that is a non-negative integer or a percentage such as 25%",
            lambda part: _is_count_or_percentage(part.max_unavailable),
        ),
    )
