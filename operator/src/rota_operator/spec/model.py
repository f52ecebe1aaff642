"""
The `spec` of a ConsumerGroup, version v1alpha1. Names, defaults and bounds are a contract; `kubectl explain` shows the
descriptions.
"""

from typing import ClassVar, Literal

from pydantic import Field

from rota_operator.spec.auth import Auth
from rota_operator.spec.delivery import Delivery
from rota_operator.spec.membership import Assignment, Membership
from rota_operator.spec.names import GroupId
from rota_operator.spec.offsets import Offsets
from rota_operator.spec.scalars import Address, NonNegativeInt, OptionalRotaAddress, PositiveInt, Topic
from rota_operator.spec.schema import SpecModel, TransitionRule, ValidationRule
from rota_operator.spec.workload import Autoscaling, PodDisruptionBudget, ScaleTargetRef, Sidecar, Spark

GROUP = "rota.dev"
VERSION = "v1alpha1"
KIND = "ConsumerGroup"
ROTA = "rota://"
# Consumer properties that Rota manages: `config` must not set them.
OWNED_KEYS = (
    "auto.offset.reset", "bootstrap.servers", "client.rack", "enable.auto.commit", "enable.auto.offset.store",
    "group.id", "group.instance.id", "group.protocol", "heartbeat.interval.ms", "max.poll.interval.ms",
    "partition.assignment.strategy", "session.timeout.ms",
)  # fmt: skip


class Alerts(SpecModel):
    """Thresholds of the group's alerts, in seconds."""

    lag_seconds: PositiveInt = Field(
        default=300, description="The age of the oldest uncommitted record above which an alert fires."
    )
    stuck_seconds: PositiveInt = Field(
        default=120,
        description="The time without progress on uncommitted records after which an alert fires.",
    )


class Monitoring(SpecModel):
    """Metrics and alerts of the group."""

    granularity: Literal["partition", "topic", "group"] = Field(
        default="partition",
        description="The level at which metrics are exported: one time series per partition, topic or group.",
    )
    alerts: Alerts = Field(default=Alerts(), description="The thresholds of the group's alerts.")


class ConsumerGroupSpec(SpecModel):
    """The desired state of a ConsumerGroup."""

    bootstrap_servers: tuple[Address, ...] = Field(
        min_length=1,
        max_length=100,
        description="Addresses of the servers that store the topics: HOST:PORT of Kafka brokers, or rota://HOST:PORT of Rota "
        "coordinators, all of one kind. An IPv6 address is in brackets.",
    )
    coordination: Literal["Auto", "Kafka", "Rota"] = Field(
        default="Auto",
        description="The system that coordinates the group and stores its offsets. Auto: the one that stores the topics. Immutable.",
    )
    coordinator_address: OptionalRotaAddress = Field(
        default="",
        description="The address of the coordinator, as rota://HOST:PORT. Required if coordination is Rota and the topics are in "
        "Kafka, and only then.",
    )
    group_id: GroupId | None = Field(
        default=None, description="The group id (group.id). Defaults to <namespace>.<name>. Immutable."
    )
    topics: tuple[Topic, ...] = Field(
        default=(),
        max_length=1000,
        description="Topics that the group consumes. Set either topics or topicPattern.",
    )
    topic_pattern: str = Field(
        default="",
        max_length=1024,
        description="A regular expression; the group consumes all topics whose full name matches. Set either topics or "
        "topicPattern.",
    )
    auth: Auth = Field(
        default=Auth(), description="Encryption and authentication of the connections to the servers."
    )
    config: dict[str, str] = Field(
        default={},
        max_length=100,
        description="Kafka consumer properties, such as isolation.level. Properties that Rota manages are rejected.",
    )
    replicas: NonNegativeInt | None = Field(
        default=None,
        description="The desired number of replicas. Defaults to the workload's own. If autoscaling is enabled, the initial "
        "number of replicas.",
    )
    scale_target_ref: ScaleTargetRef | None = Field(
        default=None, description="The workload that consumes, in the ConsumerGroup's namespace."
    )
    sidecar: Sidecar = Field(default=Sidecar(), description="The sidecar container of each pod.")
    suspend: bool = Field(
        default=False,
        description="Stops consumption: members stay in the group and keep their partitions, but deliver no records.",
    )
    membership: Membership = Field(
        default=Membership(), description="Timeouts and identity of the group's members."
    )
    assignment: Assignment = Field(
        default=Assignment(), description="The assignment of partitions to members."
    )
    offsets: Offsets = Field(
        default=Offsets(), description="Start positions, commits and resets of the group's offsets."
    )
    delivery: Delivery = Field(
        default=Delivery(),
        description="Delivery of records to the application, with retries and dead letters.",
    )
    autoscaling: Autoscaling = Field(
        default=Autoscaling(), description="Automatic scaling of the workload by arrival rate and backlog."
    )
    spark: Spark = Field(
        default=Spark(),
        description="SparkApplications as members of the group, instead of a workload's pods.",
    )
    pod_disruption_budget: PodDisruptionBudget | None = Field(
        default=None, description="A PodDisruptionBudget for the workload's pods. Not created if absent."
    )
    monitoring: Monitoring = Field(default=Monitoring(), description="Metrics and alerts of the group.")
    deletion_policy: Literal["RetainOffsets", "DeleteGroup"] = Field(
        default="RetainOffsets",
        description="The treatment of the group when the ConsumerGroup is deleted. RetainOffsets: its committed offsets are kept. "
        "DeleteGroup: the group is deleted with its offsets.",
    )

    rules: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "(has(self.topics) && self.topics.size() > 0) != (has(self.topicPattern) && self.topicPattern != '')",
            "must set exactly one of topics and topicPattern",
            lambda spec: bool(spec.topics) != bool(spec.topic_pattern),
        ),
        ValidationRule(
            "has(self.scaleTargetRef) != (has(self.spark) && self.spark.enabled)",
            "must set exactly one of scaleTargetRef and spark.enabled",
            lambda spec: (spec.scale_target_ref is not None) != spec.spark.enabled,
        ),
        ValidationRule(
            "self.bootstrapServers.all(each, each.startsWith('rota://')) || "
            "!self.bootstrapServers.exists(each, each.startsWith('rota://'))",
            "must not mix rota:// addresses and Kafka brokers in bootstrapServers",
            lambda spec: len({each.startswith(ROTA) for each in spec.bootstrap_servers}) == 1,
        ),
        ValidationRule(
            "!self.bootstrapServers[0].startsWith('rota://') || self.coordination != 'Kafka'",
            "must have coordination Auto or Rota if bootstrapServers are rota:// addresses",
            lambda spec: not spec.speaks_rota or spec.coordination != "Kafka",
        ),
        ValidationRule(
            "(has(self.coordinatorAddress) && self.coordinatorAddress != '') == "
            "(self.coordination == 'Rota' && !self.bootstrapServers[0].startsWith('rota://'))",
            "must set coordinatorAddress if and only if coordination is Rota and bootstrapServers are Kafka brokers",
            lambda spec: (
                bool(spec.coordinator_address) == (spec.coordination == "Rota" and not spec.speaks_rota)
            ),
        ),
        ValidationRule(
            f"!has(self.config) || !self.config.exists(key, key in {list(OWNED_KEYS)})",
            "must not set config properties that Rota manages; use the corresponding fields instead of "
            + ", ".join(OWNED_KEYS),
            lambda spec: not set(spec.config) & set(OWNED_KEYS),
        ),
    )
    transition_rules: ClassVar[tuple[TransitionRule, ...]] = (
        TransitionRule(
            "has(self.groupId) == has(oldSelf.groupId) && (!has(self.groupId) || self.groupId == oldSelf.groupId)",
            "must not change groupId, which is immutable; create another ConsumerGroup",
            lambda was, spec: was.group_id == spec.group_id,
        ),
        TransitionRule(
            "self.coordination == oldSelf.coordination",
            "must not change coordination, which is immutable; create another ConsumerGroup",
            lambda was, spec: was.coordination == spec.coordination,
        ),
        TransitionRule(
            "has(self.scaleTargetRef) == has(oldSelf.scaleTargetRef)",
            "must not change between scaleTargetRef and spark.enabled; create another ConsumerGroup",
            lambda was, spec: was.spark.enabled == spec.spark.enabled,
        ),
        TransitionRule(
            "!has(self.spark) || !has(oldSelf.spark) || !self.spark.enabled || !oldSelf.spark.enabled || "
            "self.spark.apiVersion == oldSelf.spark.apiVersion",
            "must not change spark.apiVersion, which is immutable; create another ConsumerGroup",
            lambda was, spec: (
                not (was.spark.enabled and spec.spark.enabled)
                or was.spark.api_version == spec.spark.api_version
            ),
        ),
    )

    @property
    def speaks_rota(self) -> bool:
        """True if the topics are in Rota's embedded log, not in Kafka."""
        return self.bootstrap_servers[0].startswith(ROTA)
