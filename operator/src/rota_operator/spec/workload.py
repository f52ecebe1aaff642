"""Who consumes: a workload with sidecars in it, or SparkApplications, and how many there should be."""

import re
from typing import Any, ClassVar, Literal

from pydantic import Field

from rota_operator.spec.declaring import Part, Rule
from rota_operator.spec.names import OptionalContainerName, ResourceName
from rota_operator.spec.scalars import Count, IntOrText, Seconds, Share


class ScaleTargetRef(Part):
    """The workload that consumes."""

    api_version: Literal["apps/v1"] = Field(default="apps/v1", description="Of the workload.")
    kind: Literal["Deployment", "StatefulSet"] = Field(default="Deployment", description="Of the workload.")
    name: ResourceName = Field(description="Of the workload, in the group's namespace.")


class Resources(Part):
    """What the sidecar's container may use, as Kubernetes writes it."""

    requests: dict[str, str] = Field(default={}, description="What is set aside for it.", max_length=16)
    limits: dict[str, str] = Field(default={}, description="What it gets at most.", max_length=16)


class Sidecar(Part):
    """The sidecar beside each pod's application."""

    image: str = Field(
        default="",
        description="Its image; empty: the operator's own version, pinned when the group is first seen.",
    )
    container: OptionalContainerName = Field(
        default="", description="The container that consumes; empty: the only one, or the first."
    )
    termination_drain_seconds: Seconds = Field(
        default=45, description="How long a pod that ends is given to finish what it has in hand."
    )
    resources: Resources = Field(
        default=Resources(requests={"cpu": "50m", "memory": "64Mi"}),
        description="Of the sidecar's container.",
    )


class Fallback(Part):
    """What to do when too little is known."""

    failure_threshold: Seconds = Field(default=3, description="After so many bad samples.")
    replicas: Count | None = Field(default=None, description="So many replicas; none: stay.")


class Autoscaling(Part):
    """How many replicas there should be."""

    enabled: bool = Field(
        default=False, description="Whether replicas follow the work; spec.replicas is where they start."
    )
    min_replica_count: Count = Field(default=1, description="Never fewer.")
    max_replica_count: Seconds = Field(
        default=24, description="Never more; nor more than there are partitions."
    )
    polling_interval: Seconds = Field(default=10, description="Seconds between two samples.")
    min_change_interval_seconds: Count = Field(default=300, description="Between two changes.")
    lag_seconds_target: Seconds = Field(default=60, description="How far behind the group may be.")
    catch_up_seconds: Seconds = Field(default=600, description="In what time a backlog is to be worked off.")
    target_utilization: Share = Field(default=0.7, description="How busy replicas should be.")
    partition_alignment: Literal["off", "balanced", "even"] = Field(
        default="balanced",
        description="balanced: no replica that would lower nobody's load; even: divisors of the partitions.",
    )
    dry_run: bool = Field(default=False, description="Say what would be done, and do nothing.")
    fallback: Fallback = Field(default=Fallback(), description="When too little is known.")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.minReplicaCount <= self.maxReplicaCount",
            "has a minReplicaCount above its maxReplicaCount: exchange them",
            lambda part: part.min_replica_count <= part.max_replica_count,
        ),
    )


class SparkTemplate(Part):
    """What each SparkApplication is made of."""

    spec: dict[str, Any] = Field(description="As the Spark operator takes it.")


class Spark(Part):
    """SparkApplications as members."""

    enabled: bool = Field(default=False, description="Make SparkApplications instead of scaling a workload.")
    api_version: Literal["sparkoperator.k8s.io/v1beta2", "spark.apache.org/v1"] = Field(
        default="sparkoperator.k8s.io/v1beta2", description="Of which Spark operator."
    )
    partitions_per_application: Seconds = Field(
        default=12, description="One application for each so many partitions."
    )
    template: SparkTemplate | None = Field(default=None, description="What each is made of.")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!self.enabled || has(self.template)",
            "is enabled without a template: give spark.template.spec",
            lambda part: not part.enabled or part.template is not None,
        ),
    )


def _is_some(number_or_share: int | str) -> bool:
    if isinstance(number_or_share, int):
        return number_or_share >= 0
    return re.fullmatch("[0-9]{1,3}%", number_or_share) is not None


class PodDisruptionBudget(Part):
    """How many pods may go at once when nodes are emptied."""

    max_unavailable: IntOrText = Field(default=1, description="A number, or a share as 25%.")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "type(self.maxUnavailable) == int ? self.maxUnavailable >= 0 : "
            "self.maxUnavailable.matches('^[0-9]{1,3}%$')",
            "is no number and no share: give maxUnavailable as 1 or as 25%",
            lambda part: _is_some(part.max_unavailable),
        ),
    )
