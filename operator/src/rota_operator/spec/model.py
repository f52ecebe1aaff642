"""The fields of a ConsumerGroup, version v1alpha1. Names, defaults and bounds are a contract; people read the descriptions with
`kubectl explain`.
"""

from typing import ClassVar, Literal

from pydantic import Field

from rota_operator.spec.consuming import Assignment, Delivery, Membership, Offsets
from rota_operator.spec.declaring import Change, Part, Rule
from rota_operator.spec.names import GroupId
from rota_operator.spec.scalars import Address, Count, Seconds, Topic
from rota_operator.spec.servers import Auth
from rota_operator.spec.workload import Autoscaling, PodDisruptionBudget, ScaleTargetRef, Sidecar, Spark

GROUP = "rota.dev"
VERSION = "v1alpha1"
KIND = "ConsumerGroup"
ROTA = "rota://"
# Keys of `config` that Rota sets by itself: another value would break what it promises.
OWNED_KEYS = (
    "auto.offset.reset", "bootstrap.servers", "client.rack", "enable.auto.commit", "enable.auto.offset.store",
    "group.id", "group.instance.id", "group.protocol", "heartbeat.interval.ms", "max.poll.interval.ms",
    "partition.assignment.strategy", "session.timeout.ms",
)  # fmt: skip


class Alerts(Part):
    """When to call somebody."""

    lag_seconds: Seconds = Field(default=300, description="So far behind.")
    stuck_seconds: Seconds = Field(default=120, description="So long without progress.")


class Monitoring(Part):
    """What is shown of the group."""

    granularity: Literal["partition", "topic", "group"] = Field(
        default="partition", description="How fine series are."
    )
    alerts: Alerts = Field(default=Alerts(), description="When to call somebody.")


class ConsumerGroupSpec(Part):
    """A group of consumers: what they read, who they are, how they share it, and how many there are."""

    bootstrap_servers: tuple[Address, ...] = Field(
        min_length=1,
        max_length=100,
        description="Where the records are: HOST:PORT of Kafka, or rota://HOST:PORT.",
    )
    coordination: Literal["Auto", "Kafka", "Rota"] = Field(
        default="Auto",
        description="Who coordinates the group; Auto: whoever keeps the records. It cannot be changed.",
    )
    coordinator_address: str = Field(
        default="",
        max_length=1024,
        description="With coordination Rota over records of Kafka: the coordinator, as rota://HOST:PORT.",
    )
    group_id: GroupId | None = Field(
        default=None, description="The group's name; none: <namespace>.<name>. It cannot be changed."
    )
    topics: tuple[Topic, ...] = Field(default=(), max_length=1000, description="What is read.")
    topic_pattern: str = Field(
        default="",
        max_length=1024,
        description="All topics whose whole name matches this regular expression are read.",
    )
    auth: Auth = Field(default=Auth(), description="How the servers are spoken to.")
    config: dict[str, str] = Field(
        default={},
        max_length=100,
        description="Properties of a Kafka consumer, but for those that Rota sets by itself.",
    )
    replicas: Count | None = Field(
        default=None,
        description="How many pods or processes; none: as the workload says. With autoscaling: how many at first.",
    )
    scale_target_ref: ScaleTargetRef | None = Field(default=None, description="The workload that consumes.")
    sidecar: Sidecar = Field(default=Sidecar(), description="The sidecar beside each application.")
    suspend: bool = Field(default=False, description="Keep the membership, and read nothing.")
    membership: Membership = Field(default=Membership(), description="How the group learns who lives.")
    assignment: Assignment = Field(default=Assignment(), description="Who gets which partitions.")
    offsets: Offsets = Field(default=Offsets(), description="Where reading begins, and what is committed.")
    delivery: Delivery = Field(default=Delivery(), description="How records come to the application.")
    autoscaling: Autoscaling = Field(default=Autoscaling(), description="How many replicas there should be.")
    spark: Spark = Field(default=Spark(), description="SparkApplications as members.")
    pod_disruption_budget: PodDisruptionBudget | None = Field(
        default=None, description="How many pods may go at once when nodes are emptied."
    )
    monitoring: Monitoring = Field(default=Monitoring(), description="What is shown of the group.")
    deletion_policy: Literal["RetainOffsets", "DeleteGroup"] = Field(
        default="RetainOffsets",
        description="What becomes of the committed offsets when this resource is deleted.",
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(has(self.topics) && self.topics.size() > 0) != (has(self.topicPattern) && self.topicPattern != '')",
            "does not say what to read: give exactly one of topics and topicPattern",
            lambda spec: bool(spec.topics) != bool(spec.topic_pattern),
        ),
        Rule(
            "has(self.scaleTargetRef) != (has(self.spark) && self.spark.enabled)",
            "does not say who consumes: give exactly one of scaleTargetRef and spark.enabled",
            lambda spec: (spec.scale_target_ref is not None) != spec.spark.enabled,
        ),
        Rule(
            "self.bootstrapServers.all(each, each.startsWith('rota://')) || "
            "!self.bootstrapServers.exists(each, each.startsWith('rota://'))",
            "mixes Rota's servers with Kafka's: give bootstrapServers of one kind",
            lambda spec: len({each.startswith(ROTA) for each in spec.bootstrap_servers}) == 1,
        ),
        Rule(
            "!self.bootstrapServers[0].startsWith('rota://') || self.coordination != 'Kafka'",
            "has Kafka coordinate what Rota keeps: give coordination Auto or Rota",
            lambda spec: not spec.speaks_rota or spec.coordination != "Kafka",
        ),
        Rule(
            "(has(self.coordinatorAddress) && self.coordinatorAddress != '') == "
            "(self.coordination == 'Rota' && !self.bootstrapServers[0].startsWith('rota://'))",
            "contradicts itself: coordinatorAddress goes with coordination Rota over records of Kafka, and only with that",
            lambda spec: (
                bool(spec.coordinator_address) == (spec.coordination == "Rota" and not spec.speaks_rota)
            ),
        ),
        Rule(
            f"!has(self.config) || !self.config.exists(key, key in {list(OWNED_KEYS)})",
            "sets a property in config that Rota sets by itself: leave these out, there are fields for them: "
            + ", ".join(OWNED_KEYS),
            lambda spec: not set(spec.config) & set(OWNED_KEYS),
        ),
    )
    changes: ClassVar[tuple[Change, ...]] = (
        Change(
            "has(self.groupId) == has(oldSelf.groupId) && (!has(self.groupId) || self.groupId == oldSelf.groupId)",
            "changes groupId, by which its offsets are kept: make another ConsumerGroup",
            lambda was, spec: was.group_id == spec.group_id,
        ),
        Change(
            "self.coordination == oldSelf.coordination",
            "changes coordination, where its offsets are kept: make another ConsumerGroup",
            lambda was, spec: was.coordination == spec.coordination,
        ),
    )

    @property
    def speaks_rota(self) -> bool:
        """Whether the records are on Rota's own log."""
        return self.bootstrap_servers[0].startswith(ROTA)
