"""The `status` of a ConsumerGroup: its observed state. Only the operator writes it; unknown values are absent, never zero."""

from typing import Literal

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from rota_operator.spec.scalars import Int64
from rota_operator.spec.schema import SpecModel

DATE_TIME: JsonDict = {"format": "date-time"}


class StatusModel(SpecModel):
    """
    Base of the models below: the operator makes them by the names of Python, users never write them.

    Fields of a newer version are ignored: an older operator may lead during an upgrade, or after it was undone.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, extra="ignore")


class Condition(StatusModel):
    """Condition of the group: an aspect of its current state, as `metav1.Condition`."""

    type: str = Field(description="The type of the condition, in CamelCase.", max_length=316)
    status: Literal["True", "False", "Unknown"] = Field(
        description="The status of the condition: True, False or Unknown."
    )
    reason: str = Field(
        description="A programmatic identifier, in CamelCase, of the reason for the last transition.",
        max_length=1024,
    )
    message: str = Field(
        default="",
        description="A human-readable message with details of the last transition.",
        max_length=32768,
    )
    last_transition_time: str = Field(
        description="The time of the last transition between two statuses.", json_schema_extra=DATE_TIME
    )
    observed_generation: int = Field(
        default=0, description="The metadata.generation that the condition was set for."
    )


class Lag(StatusModel):
    """Uncommitted records of the group; values that are unknown are absent."""

    total: Int64 | None = Field(
        default=None, description="The number of uncommitted records in all partitions."
    )
    max: Int64 | None = Field(
        default=None, description="The number of uncommitted records in the partition with the most."
    )
    max_seconds: Int64 | None = Field(
        default=None, description="The age of the oldest uncommitted record, in seconds."
    )


class LastRebalance(StatusModel):
    """The most recent rebalance."""

    reason: str = Field(default="", description="The reason for the rebalance.")
    duration_ms: Int64 | None = Field(
        default=None, description="The duration of the rebalance, in milliseconds."
    )
    moved_partitions: int | None = Field(
        default=None, description="The number of partitions that were assigned to another member."
    )


class ScalingInputs(StatusModel):
    """Inputs of a decision of the autoscaler, from which it can be made again. Rates are in records per second; unknown values are absent."""

    knowledge: str = Field(
        description="What was known of the load: Good, Unknown, Rebalancing, Suspended or FewSamples."
    )
    problem: str = Field(default="", description="What was wrong with the latest sample.")
    members: int | None = Field(default=None, description="The number of members of the group.")
    partitions: int | None = Field(default=None, description="The number of partitions of the group.")
    good_samples: int = Field(
        default=0, description="The number of samples since the last rebalance that the decision rests on."
    )
    bad_samples: int = Field(default=0, description="The number of consecutive failed samples.")
    arrival_rate: float | None = Field(default=None, description="The rate at which records arrive.")
    backlog: Int64 | None = Field(default=None, description="The number of uncommitted records.")
    lag_seconds: float | None = Field(
        default=None, description="The age of the oldest uncommitted record, in seconds."
    )
    wait_seconds: float | None = Field(
        default=None, description="The time in which the members process the backlog, in seconds."
    )
    demand: float | None = Field(
        default=None,
        description="The rate at which records are to be processed: those that arrive, and the backlog within catchUpSeconds. The average "
        "of the last samples, or the latest if it is higher. For a group that will be late, the backlog within lagSecondsTarget, with "
        "what arrives until replicas have started.",
    )
    sustained_demand: float | None = Field(
        default=None,
        description="The demand of each of the last two samples; the number grows if it exceeds the target, or if the demand does and "
        "growth is urgent.",
    )
    peak_demand: float | None = Field(
        default=None,
        description="The highest demand within minChangeIntervalSeconds that two consecutive samples had.",
    )
    service_rate: float | None = Field(
        default=None, description="The rate at which a replica processes records while it is busy."
    )
    is_partial: bool = Field(
        default=False, description="Whether the load of some partitions or members was unknown."
    )
    is_late: bool = Field(
        default=False, description="Whether the oldest uncommitted record was older than lagSecondsTarget."
    )
    will_be_late: bool = Field(
        default=False,
        description="Whether the backlog grew, and the oldest uncommitted record would be older than lagSecondsTarget before further "
        "replicas have started.",
    )
    hot_partitions: tuple[str, ...] = Field(
        default=(),
        max_length=5,
        description="Partitions with more load than one replica processes; more replicas do not help them.",
    )
    rebalance_gain: float = Field(
        default=0.0,
        description="The rate at which the owner of a hot partition would process records in addition if a rebalance moved its other "
        "partitions to other members; 0 unless the strategy is load-aware-sticky.",
    )
    pause_ms: Int64 | None = Field(
        default=None, description="The expected duration of a rebalance, in milliseconds."
    )
    start_ms: Int64 | None = Field(
        default=None,
        description="The time that the replicas which were added last took to join the group, in milliseconds.",
    )
    since_change_ms: Int64 | None = Field(
        default=None,
        description="The time since the last change of the number of replicas, or rebalance with the same number, by the autoscaler, in "
        "milliseconds.",
    )
    since_growth_ms: Int64 | None = Field(
        default=None,
        description="The time since the last change of the number of replicas, in milliseconds, if that change added replicas.",
    )
    observed_ms: Int64 = Field(
        default=0, description="The time since which the group was observed without a gap, in milliseconds."
    )
    ineffective_replicas: int | None = Field(
        default=None, description="The number of replicas beyond which growth did not help before."
    )
    is_rebalance_pending: bool = Field(
        default=False,
        description="Whether it was not known yet what the last rebalance with the same number of replicas moved.",
    )
    is_rebalance_ineffective: bool = Field(
        default=False,
        description="Whether a rebalance with the same number of replicas moved no partition before.",
    )
    is_rolling_out: bool = Field(default=False, description="Whether the workload was being rolled out.")


class ScalingDecision(StatusModel):
    """A decision of the autoscaler."""

    time: str = Field(description="The time of the decision.", json_schema_extra=DATE_TIME)
    replicas: int = Field(description="The number of replicas before the decision.")
    recommendation: int = Field(description="The number of replicas that was decided.")
    reason: str = Field(description="A programmatic identifier, in CamelCase, of the reason.", max_length=64)
    message: str = Field(
        default="",
        description="A human-readable message with the numbers behind the decision.",
        max_length=1024,
    )
    dry_run: bool = Field(default=False, description="Whether the decision was only reported.")
    inputs: ScalingInputs = Field(description="The inputs of the decision.")


class IneffectiveScaling(StatusModel):
    """Growth after which the group did not process more records; with equal numbers, a rebalance that moved no partition."""

    time: str = Field(description="The time at which that was found.", json_schema_extra=DATE_TIME)
    from_replicas: int = Field(description="The number of replicas before the change.")
    to_replicas: int = Field(description="The number of replicas after the change.")


class Scaling(StatusModel):
    """The state of the autoscaler."""

    recommendation: int | None = Field(default=None, description="The recommended number of replicas.")
    needed_replicas: int | None = Field(
        default=None,
        description="The number of replicas that the load asks for, whatever minReplicaCount, maxReplicaCount and the number of "
        "partitions are.",
    )
    explanation: str = Field(default="", description="How the recommendation was computed.", max_length=1024)
    last_scale_time: str | None = Field(
        default=None,
        description="The last time the autoscaler changed the number of replicas.",
        json_schema_extra=DATE_TIME,
    )
    last_rebalance_time: str | None = Field(
        default=None,
        description="The last time the autoscaler let the group rebalance with the same number of replicas.",
        json_schema_extra=DATE_TIME,
    )
    decisions: tuple[ScalingDecision, ...] = Field(
        default=(),
        max_length=20,
        description="The last 20 decisions, newest first. One that repeats the one before it is not listed.",
    )
    ineffective: tuple[IneffectiveScaling, ...] = Field(
        default=(),
        max_length=5,
        description="Growth, or a rebalance, that did not help; it is not repeated for half an hour.",
    )


class ResetIdentity(StatusModel):
    """A reset that has acted; its identity never acts again."""

    request_id: str = Field(description="The requestId of the reset.")
    dry_run: bool = Field(default=True, description="Whether the reset was a dry run.")
    plan_hash: str = Field(default="", description="The hash of the plan that was written or executed.")


class OffsetReset(StatusModel):
    """The state of the reset in `spec.offsets.reset`, or of the one before it."""

    request_id: str = Field(description="The requestId of the reset.")
    dry_run: bool = Field(default=True, description="Whether the reset is a dry run.")
    phase: str = Field(
        description="The phase of the reset: Waiting, Rejected, Recorded, Planned, Suspending, Committing, Verifying, Resuming, "
        "Completed or Failed."
    )
    message: str = Field(default="", description="The reason for the phase, and what to do.", max_length=1024)
    plan_config_map: str = Field(
        default="", description="The name of the ConfigMap with the current and the new offsets."
    )
    plan_hash: str = Field(
        default="", description="The hash of the plan; an execution after a dry run executes this plan only."
    )
    undo_config_map: str = Field(
        default="",
        description="The name of the ConfigMap with the plan that undoes the reset, for fromConfigMap.",
    )
    partitions: int | None = Field(default=None, description="The number of partitions in the plan.")
    skipped_records: Int64 | None = Field(
        default=None, description="The number of records that the reset skips."
    )
    repeated_records: Int64 | None = Field(
        default=None, description="The number of records that are consumed again after the reset."
    )
    observed_generation: int = Field(
        default=0, description="The metadata.generation for which the reset was rejected."
    )
    executed: tuple[ResetIdentity, ...] = Field(
        default=(), max_length=50, description="The last 50 resets that have acted, the newest one last."
    )


class Placement(StatusModel):
    """Placement of a member of the group, or of a SparkApplication that is none now."""

    pod_name: str = Field(
        description="The name of the member's pod; empty for a SparkApplication whose driver does not run."
    )
    member_id: str = Field(default="", description="The member id issued by the coordinator.")
    partitions: int = Field(default=0, description="The number of partitions assigned to the member.")
    lag: Int64 | None = Field(
        default=None, description="The number of uncommitted records in these partitions."
    )
    application: str | None = Field(
        default=None, description="The name of the SparkApplication whose driver is the member."
    )
    application_state: str | None = Field(
        default=None, description="The state of the SparkApplication, as its Spark operator reports it."
    )


class ConsumerGroupStatus(StatusModel):
    """The observed state of a ConsumerGroup."""

    observed_generation: int = Field(
        default=0, description="The metadata.generation that the operator observed last."
    )
    phase: str = Field(default="", description="A one-word summary of the group's state.")
    group_id: str = Field(default="", description="The group id in use.")
    coordination: str = Field(default="", description="The system that coordinates the group: Kafka or Rota.")
    cluster_id: str = Field(
        default="", description="The id of the cluster that coordinates the group, as its members report it."
    )
    sidecar_image: str = Field(default="", description="The sidecar image in use.")
    selector: str = Field(default="", description="The label selector of the pods that consume.")
    replicas: int | None = Field(default=None, description="The number of pods, or of SparkApplications.")
    ready_replicas: int | None = Field(
        default=None, description="The number of ready pods, or of running SparkApplications."
    )
    desired_replicas: int | None = Field(
        default=None, description="The desired number of pods, or of SparkApplications."
    )
    members: int | None = Field(default=None, description="The number of members of the group.")
    partitions: int | None = Field(
        default=None, description="The number of partitions that the group consumes."
    )
    unowned_partitions: int | None = Field(
        default=None, description="The number of partitions that are assigned to no member."
    )
    generation: int | None = Field(
        default=None, description="The generation of the group, increased by each rebalance."
    )
    lag: Lag = Field(default=Lag(), description="The uncommitted records of the group.")
    rebalance: LastRebalance = Field(default=LastRebalance(), description="The most recent rebalance.")
    scaling: Scaling = Field(default=Scaling(), description="The state of the autoscaler.")
    offset_reset: OffsetReset | None = Field(
        default=None, description="The state of the reset in spec.offsets.reset."
    )
    placements: tuple[Placement, ...] = Field(
        default=(),
        max_length=100,
        description="The members of the group, at most 100 of them. Of a group with SparkApplications, one for each of them.",
    )
    conditions: tuple[Condition, ...] = Field(
        default=(),
        max_length=20,
        description="The conditions of the group's current state.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
