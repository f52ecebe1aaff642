"""Inputs of a ConsumerGroup's status, in the forms in which the shell has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rota_operator.overview.assignment import Partition
from rota_operator.overview.problems import NO_ANSWER, CoordinatorProblem
from rota_operator.overview.view import GroupView
from rota_operator.reconcile.decision import Decision, Refusal
from rota_operator.reconcile.group import identity_of
from rota_operator.reconcile.observed import Object, SparkObjects
from rota_operator.reconcile.spark.applications import driver_of, own_applications
from rota_operator.reconcile.spark.kinds import Stage, state_of
from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.status import ConsumerGroupStatus, Scaling

# Of a Deployment, while the API server refuses its pods: a quota, a Pod Security level, an admission webhook.
REPLICA_FAILURE = "ReplicaFailure"


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods of a workload, by its status."""

    replicas: int
    ready: int
    # Why pods cannot be created, as the cluster says it; empty: they can.
    problem: str = ""


class ReportedPartition(NamedTuple):
    """A partition that a sidecar reports as its own; one that has lost it does so until it learns that."""

    sidecar: str
    partition: Partition


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of one partition, as a sidecar reports it."""

    # Unix time; it stands still only while records wait. None: the sidecar does not report it.
    last_progress_ms: int | None
    # Why the partition stands still; empty: it does not.
    problem: str = ""


class ApplicationState(NamedTuple):
    """A SparkApplication of the group."""

    name: str
    # As its Spark operator reports it; empty: it has reported none yet.
    state: str
    is_running: bool
    # Name of its driver's pod; empty: none runs.
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Sidecars:
    """Software and settings of the connected sidecars, by the names of their pods."""

    # Version of the operator's own software.
    operator_version: str = ""
    # As sidecars report it; empty: a sidecar from before versions were reported.
    versions: Mapping[str, str] = field(default_factory=dict)
    # Why sidecars refuse the present settings, in one sentence with the setting's path.
    refused_settings: Mapping[str, str] = field(default_factory=dict)
    # How sidecars have lost their instances to other processes, and what to do, in one sentence.
    fenced: Mapping[str, str] = field(default_factory=dict)

    @property
    def of_other_versions(self) -> Mapping[str, str]:
        """Versions other than the operator's."""
        return {pod: each for pod, each in self.versions.items() if each != self.operator_version}


@dataclass(frozen=True, slots=True)
class AutoscalerState:
    """State of a group's autoscaler in this process."""

    scaling: Scaling
    # Why the load is unknown; empty: it is known.
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """Everything that the status of one ConsumerGroup depends on."""

    # Only its metadata is read here.
    resource: Object
    # None: the spec is invalid.
    spec: ConsumerGroupSpec | None
    # The status as the API server holds it.
    former: ConsumerGroupStatus
    decision: Decision
    # The same time twice: RFC 3339 in UTC, and in ms.
    now: str
    now_ms: int
    # None: the operator has no view of the group.
    group: GroupView | None = None
    # Of live reports alone.
    progress: Mapping[ReportedPartition, Progress] = field(default_factory=dict)
    # None: the workload does not exist.
    pods: Pods | None = None
    # A request of the operator that failed, and that no later one has made good.
    failure: Refusal | None = None
    # Why the coordinator does not describe the group; without meaning while it does.
    problem: CoordinatorProblem = NO_ANSWER
    # As members report it; empty: unknown.
    cluster_id: str = ""
    # Why the operator cannot read the group's Kafka cluster itself; empty: it can, or the group is not on Kafka.
    kafka_problem: str = ""
    sidecars: Sidecars = Sidecars()
    # None: no autoscaler has looked at the group yet.
    autoscaler: AutoscalerState | None = None
    # In the order of their numbers; empty for a group without SparkApplications.
    applications: tuple[ApplicationState, ...] = ()


def application_states(spark: SparkObjects, resource: Object) -> tuple[ApplicationState, ...]:
    """Read the states of a ConsumerGroup's SparkApplications."""
    found: list[ApplicationState] = []
    for each in own_applications(spark, identity_of(resource)).values():
        name, state = each["metadata"]["name"], state_of(each)
        pod = driver_of(spark, name)
        pod_name = "" if pod is None else pod["metadata"]["name"]
        found.append(ApplicationState(name, state.name, state.stage is Stage.RUNNING, pod_name))
    return tuple(found)


def pods_of(workload: Object, refused: str = "") -> Pods:
    """Read the status of a workload; `refused` is why pods cannot be created, where the status does not say it."""
    status: Mapping[str, Any] = workload.get("status") or {}
    problem = next(
        (
            str(each.get("message", ""))
            for each in status.get("conditions") or ()
            if each.get("type") == REPLICA_FAILURE and each.get("status") == "True"
        ),
        refused,
    )
    return Pods(status.get("replicas") or 0, status.get("readyReplicas") or 0, problem)
