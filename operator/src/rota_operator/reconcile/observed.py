"""The state of a cluster as far as one ConsumerGroup is concerned: the input of `plan`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# A Kubernetes object or a part of one, as the API server returns it in JSON.
Object = Mapping[str, Any]


class WorkloadRef(NamedTuple):
    """A Deployment or StatefulSet in the ConsumerGroup's namespace."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Claim:
    """
    Another ConsumerGroup, and what it claims: a workload, and a group id on a cluster.

    The oldest claim wins: by `created` (RFC 3339, UTC), then by `uid`.
    """

    namespace: str
    name: str
    uid: str
    created: str
    target: WorkloadRef | None
    group_id: str
    # Sorted addresses of the system that coordinates the group: equal group ids on different clusters do not conflict.
    coordinator: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """The operator's own settings that appear in objects it writes. All but the authority are fixed while the operator runs."""

    # Used for a new ConsumerGroup without `spec.sidecar.image`, and pinned in its status.
    sidecar_image: str
    # HOST:PORT at which sidecars reach Fleet.
    fleet_address: str
    # PEM of the certificate authority of the operator and of Rota's coordinators; empty: the system's trust store.
    authority: str = ""
    # Sidecars may send their token in plain text: only where the network is trusted.
    insecure: bool = False
    # Groups may have SparkApplications: the operator has the rights for them.
    manages_spark: bool = False


class SidecarStrategies(NamedTuple):
    """Strategies of one sidecar, as it reports them; both empty: it is older than these reports."""

    # Of its generation; empty: it is in none.
    chosen: str = ""
    offered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupStrategies:
    """Strategies of a group."""

    # As the coordinator describes it; empty: the group has no members, or is not described.
    chosen: str = ""
    # By the name of the pod, of connected sidecars.
    sidecars: Mapping[str, SidecarStrategies] = field(default_factory=dict)


class DrainProgress(NamedTuple):
    """A drain that a driver's sidecar was ordered."""

    is_over: bool
    # Why it has failed: records in flight are delivered again; empty: it has not.
    problem: str = ""


@dataclass(frozen=True, slots=True)
class SparkObjects:
    """SparkApplications of a ConsumerGroup, and what its number of them depends on."""

    # The API server serves the kind.
    is_served: bool = True
    # With the label of the ConsumerGroup's claim.
    applications: tuple[Object, ...] = ()
    # Pods of drivers, with the same label.
    drivers: tuple[Object, ...] = ()
    # By uid of a driver's pod.
    drains: Mapping[str, DrainProgress] = field(default_factory=dict)
    # Partitions that the group consumes; None: unknown.
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """
    State of one ConsumerGroup and of the objects that it needs. None and empty mean that an object does not exist.

    Invariant: all objects are of the ConsumerGroup's namespace, except claims.
    """

    resource: Object
    settings: OperatorSettings
    # Kubernetes' (major, minor) version: decides which fields a pod may use.
    version: tuple[int, int]
    # The workload that spec.scaleTargetRef names.
    target: Object | None = None
    # Workloads that carry the label of this ConsumerGroup's claim; the target too once it is adopted.
    adopted: tuple[Object, ...] = ()
    # Other ConsumerGroups, of all namespaces that the operator watches.
    claims: tuple[Claim, ...] = ()
    config_map: Object | None = None
    disruption_budget: Object | None = None
    # HorizontalPodAutoscalers that scale the target itself, by name, those of KEDA with their ScaledObject.
    autoscalers: tuple[str, ...] = ()
    # The same, of those that scale this ConsumerGroup.
    group_autoscalers: tuple[str, ...] = ()
    # Why the operator cannot read the group's Kafka cluster without members; empty: it can, or need not.
    kafka_problem: str = ""
    # Secrets that spec.auth names, as "name" or "name/key", of which the kubelet or the API server says that they are missing.
    missing_secrets: tuple[str, ...] = ()
    # Pods of a group that names Secrets have not mounted them yet: the kubelet may report a missing one.
    pods_are_pending: bool = False
    # Why the API server refuses pods of a StatefulSet, as its controller's Events say it; empty: it does not, or it is not known yet.
    refused_pods: str = ""
    # Members of the group at its coordinator; None: unknown.
    members: int | None = None
    # The group has no committed offset at all; None: unknown.
    is_new: bool | None = None
    # Assignment strategies of the group and of its connected sidecars.
    strategies: GroupStrategies = GroupStrategies()
    # Empty for a group without SparkApplications.
    spark: SparkObjects = SparkObjects()
