"""
Conditions of a ConsumerGroup: their types, and the closed list of their reasons.

Part of the API: scripts and dashboards compare these words. `make crds` writes docs/reference/conditions.md from here, and a
test holds that the operator uses no other reason.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class ConditionType(StrEnum):
    """Types, in the order in which they stand in the status."""

    READY = "Ready"
    REBALANCING = "Rebalancing"
    LAGGING = "Lagging"
    STUCK = "Stuck"
    SCALING_ACTIVE = "ScalingActive"
    OFFSET_RESET = "OffsetReset"


class Phase(StrEnum):
    """Values of `status.phase`."""

    PENDING = "Pending"
    REFUSED = "Refused"
    IDLE = "Idle"
    JOINING = "Joining"
    REBALANCING = "Rebalancing"
    STABLE = "Stable"
    STUCK = "Stuck"
    SUSPENDED = "Suspended"
    UNKNOWN = "Unknown"
    DELETING = "Deleting"


class Reason(StrEnum):
    """Reasons of all conditions, and of the remarks in their messages."""

    # The spec is not followed.
    INVALID_SPEC = "InvalidSpec"
    UNSUPPORTED_FIELD = "UnsupportedField"
    IMMUTABLE_FIELD = "ImmutableField"
    UNSUPPORTED_KUBERNETES = "UnsupportedKubernetes"
    TARGET_NOT_FOUND = "TargetNotFound"
    INVALID_TARGET = "InvalidTarget"
    TARGET_CLAIMED = "TargetClaimed"
    GROUP_ID_CLAIMED = "GroupIdClaimed"
    NAME_TAKEN = "NameTaken"
    SECRET_NOT_FOUND = "SecretNotFound"
    SPARK_NOT_INSTALLED = "SparkNotInstalled"
    # A request of the operator failed.
    FIELD_CONFLICT = "FieldConflict"
    FORBIDDEN = "Forbidden"
    REQUEST_REFUSED = "RequestRefused"
    UNAVAILABLE = "Unavailable"
    PODS_REFUSED = "PodsRefused"
    CLUSTER_CHANGED = "ClusterChanged"
    SETTINGS_REFUSED = "SettingsRefused"
    INSTANCE_FENCED = "InstanceFenced"
    # The group.
    DELETING = "Deleting"
    SUSPENDED = "Suspended"
    SCALED_TO_ZERO = "ScaledToZero"
    NO_MEMBERS = "NoMembers"
    NO_PARTITIONS = "NoPartitions"
    PARTITIONS_UNOWNED = "PartitionsUnowned"
    PARTITIONS_STUCK = "PartitionsStuck"
    APPLICATION_MISSING = "ApplicationMissing"
    COORDINATOR_UNREACHABLE = "CoordinatorUnreachable"
    COORDINATOR_REFUSED = "CoordinatorRefused"
    SIDECAR_SILENT = "SidecarSilent"
    PROGRESS_UNKNOWN = "ProgressUnknown"
    PARTITIONS_PROGRESS = "PartitionsProgress"
    REBALANCE_IN_PROGRESS = "RebalanceInProgress"
    STABLE = "Stable"
    LAG_ABOVE_THRESHOLD = "LagAboveThreshold"
    LAG_BELOW_THRESHOLD = "LagBelowThreshold"
    LAG_UNKNOWN = "LagUnknown"
    # Replicas and resets.
    FOREIGN_AUTOSCALER = "ForeignAutoscaler"
    AUTOSCALING_DISABLED = "AutoscalingDisabled"
    NOT_ACCEPTED = "NotAccepted"
    DRY_RUN = "DryRun"
    METRICS_KNOWN = "MetricsKnown"
    METRICS_UNKNOWN = "MetricsUnknown"
    NOT_REQUESTED = "NotRequested"
    RESET_WAITING = "ResetWaiting"
    RESET_REJECTED = "ResetRejected"
    RESET_NOT_EXECUTED = "ResetNotExecuted"
    DRY_RUN_COMPLETED = "DryRunCompleted"
    RESET_IN_PROGRESS = "ResetInProgress"
    RESET_COMPLETED = "ResetCompleted"
    RESET_FAILED = "ResetFailed"
    ALREADY_EXECUTED = "AlreadyExecuted"
    # Remarks.
    NO_RACK = "NoRack"
    PRE_STOP_KEPT = "PreStopKept"
    GRACE_PERIOD_RAISED = "GracePeriodRaised"
    DRAIN_TIME_LONG = "DrainTimeLong"
    ROLLOUT_STOPS_GROUP = "RolloutStopsGroup"
    EVICTIONS_BLOCKED = "EvictionsBlocked"
    SIDECAR_VERSION = "SidecarVersion"
    NO_INITIAL_OFFSETS = "NoInitialOffsets"
    WAITING_FOR_MEMBERS = "WaitingForMembers"
    STRATEGY_CHANGING = "StrategyChanging"
    APPLICATION_STATE = "ApplicationState"
    APPLICATIONS_CHANGING = "ApplicationsChanging"
    APPLICATION_COUNT = "ApplicationCount"


class DocumentedReason(NamedTuple):
    """A reason of a condition, as the reference documents it."""

    type: ConditionType
    # Statuses of the condition with this reason; empty: a remark in the message, whatever the status.
    statuses: str
    reason: Reason
    meaning: str


_READY, _REBALANCING, _LAGGING = ConditionType.READY, ConditionType.REBALANCING, ConditionType.LAGGING
_STUCK, _SCALING, _RESET = ConditionType.STUCK, ConditionType.SCALING_ACTIVE, ConditionType.OFFSET_RESET
DOCUMENTED: Sequence[DocumentedReason] = tuple(
    DocumentedReason(*row)
    for row in (
        (_READY, "True", Reason.PARTITIONS_PROGRESS, "Every partition has an owner that makes progress, or has nothing to do."),
        (_READY, "False", Reason.INVALID_SPEC, "A field is invalid; the message has its path. Correct it."),
        (_READY, "False", Reason.UNSUPPORTED_FIELD, "A field is not supported yet, or not in this combination; the message has its path."),
        (_READY, "False", Reason.IMMUTABLE_FIELD, "`groupId` or `coordination` is another one than before. Create another ConsumerGroup."),
        (_READY, "False", Reason.UNSUPPORTED_KUBERNETES, "The cluster is older than Kubernetes 1.29, which has no native sidecars."),
        (_READY, "False", Reason.TARGET_NOT_FOUND, "The workload of `scaleTargetRef` does not exist. It is adopted when it is created."),
        (_READY, "False", Reason.INVALID_TARGET, "The workload cannot be adopted: host network, an unknown container, or a container with the sidecar's name."),
        (_READY, "False", Reason.TARGET_CLAIMED, "An older ConsumerGroup has the workload; the message names it."),
        (_READY, "False", Reason.GROUP_ID_CLAIMED, "An older ConsumerGroup has the group id on the same cluster; the message names it."),
        (_READY, "False", Reason.NAME_TAKEN, "An object with the name of one of this ConsumerGroup's objects belongs to another owner."),
        (_READY, "False", Reason.SECRET_NOT_FOUND, "A Secret, or a key of it, that `auth` names does not exist."),
        (_READY, "False", Reason.SPARK_NOT_INSTALLED, "The API server does not serve the SparkApplications of `spark.apiVersion`. Install their Spark operator; the group is followed then."),
        (_READY, "False", Reason.FIELD_CONFLICT, "Another client manages a field that Rota has to set; the message names both. Nothing is overridden."),
        (_READY, "False", Reason.FORBIDDEN, "The operator lacks a right; the message names the verb and the resource."),
        (_READY, "False", Reason.REQUEST_REFUSED, "The API server refuses a change: invalid, or against a policy. The message is the server's."),
        (_READY, "Unknown", Reason.UNAVAILABLE, "A server does not answer the operator; it tries again."),
        (_READY, "False", Reason.PODS_REFUSED, "The workload's pods cannot be created: a quota, or a Pod Security level. The message is the cluster's."),
        (_READY, "False", Reason.CLUSTER_CHANGED, "`bootstrapServers` lead to another cluster than before, which has other offsets."),
        (_READY, "False", Reason.SETTINGS_REFUSED, "A running sidecar refuses the settings of the spec, for example an assignment strategy that is not installed in its image; the message names the pod and the field."),
        (_READY, "False", Reason.INSTANCE_FENCED, "Another process uses the instance of a pod, which waits without one and does not take it back; the message names the instance, the pod and the other client. End that process."),
        (_READY, "False", Reason.DELETING, "The ConsumerGroup is being deleted."),
        (_READY, "False", Reason.SUSPENDED, "`suspend` is true: the members keep their partitions, and read nothing."),
        (_READY, "False", Reason.RESET_IN_PROGRESS, "Offsets are being reset: the members keep their partitions, and read nothing until the offsets are set."),
        (_READY, "False", Reason.SCALED_TO_ZERO, "The workload has no replicas."),
        (_READY, "False", Reason.NO_MEMBERS, "The workload has replicas, and the group has no members yet."),
        (_READY, "False", Reason.NO_PARTITIONS, "The group has members, and its topics have no partitions: they do not exist."),
        (_READY, "False", Reason.PARTITIONS_UNOWNED, "Partitions are assigned to no member."),
        (_READY, "False", Reason.PARTITIONS_STUCK, "Partitions have uncommitted records, and no progress for `monitoring.alerts.stuckSeconds`."),
        (_READY, "False", Reason.APPLICATION_MISSING, "No application is attached to the sidecar of an owner: it has not started, such as a driver of Spark whose query does not run yet, or it has ended. In a group that was Ready it may take 5 seconds to start again."),
        (_READY, "Unknown", Reason.COORDINATOR_UNREACHABLE, "The group's coordinator does not answer, so its members are not known. The message says so if its certificate is the reason."),
        (_READY, "Unknown", Reason.COORDINATOR_REFUSED, "The group's coordinator refuses the operator: its token, or it is not an administrator there, or the group belongs to another namespace. The members are not known."),
        (_READY, "Unknown", Reason.SIDECAR_SILENT, "The sidecar of an owner has not reported for 5 seconds."),
        (_READY, "Unknown", Reason.PROGRESS_UNKNOWN, "The progress of a partition is not known: its owner is another client, or it was assigned just now."),
        (_READY, "", Reason.NO_RACK, "Members have no rack, because the pod's topology label is not available."),
        (_READY, "", Reason.PRE_STOP_KEPT, "The container has a `preStop` of its own, so it does not wait for the drain."),
        (_READY, "", Reason.GRACE_PERIOD_RAISED, "The workload's manifest has a `terminationGracePeriodSeconds` that is too short for the drain. Rota raises it, again after each `kubectl apply` of the workload, and each time the pods restart. Set the seconds of the message in the manifest."),
        (_READY, "", Reason.DRAIN_TIME_LONG, "Pods may take longer to terminate than the cluster-autoscaler waits by default, 600 s. Use a smaller `sidecar.terminationDrainSeconds`, or raise the autoscaler's limit."),
        (_READY, "", Reason.ROLLOUT_STOPS_GROUP, "A rollout terminates all pods of the workload at the same time: strategy `Recreate`, or a `maxUnavailable` of all replicas. No partition has an owner meanwhile."),
        (_READY, "", Reason.EVICTIONS_BLOCKED, "`podDisruptionBudget.maxUnavailable` is 0: no pod is ever evicted, and `kubectl drain` does not end."),
        (_READY, "", Reason.SIDECAR_VERSION, "Sidecars have another version than the operator: an older one ignores settings that it does not know. Set `sidecar.image`."),
        (_READY, "", Reason.NO_INITIAL_OFFSETS, "The group has no members yet and the operator cannot commit its initial offsets."),
        (_READY, "", Reason.WAITING_FOR_MEMBERS, "`deletionPolicy: DeleteGroup` waits until the last member has left."),
        (_READY, "", Reason.STRATEGY_CHANGING, "The group changes its assignment strategy. The former one stays on offer until the group has chosen the new one and every sidecar offers it; the message names the pods that do not."),
        (_READY, "", Reason.APPLICATION_STATE, "SparkApplications do not run; the message has the state of each, and what to do."),
        (_READY, "", Reason.APPLICATIONS_CHANGING, "SparkApplications of a former template, or more than the partitions need, are drained and replaced; the message says which one is waited for."),
        (_READY, "", Reason.APPLICATION_COUNT, "The number of SparkApplications does not follow from the partitions: their number is not known yet, or it needs more than 100."),
        (_REBALANCING, "True", Reason.REBALANCE_IN_PROGRESS, "The group is rebalancing."),
        (_REBALANCING, "False", Reason.STABLE, "All members have the same generation, or there are none."),
        (_REBALANCING, "Unknown", Reason.COORDINATOR_UNREACHABLE, "The group's coordinator does not answer."),
        (_REBALANCING, "Unknown", Reason.COORDINATOR_REFUSED, "The group's coordinator refuses the operator."),
        (_LAGGING, "True", Reason.LAG_ABOVE_THRESHOLD, "The oldest uncommitted record is older than `monitoring.alerts.lagSeconds`."),
        (_LAGGING, "False", Reason.LAG_BELOW_THRESHOLD, "No uncommitted record is older than `monitoring.alerts.lagSeconds`."),
        (_LAGGING, "Unknown", Reason.LAG_UNKNOWN, "The lag of at least one partition is not known, and no known one is above the threshold."),
        (_STUCK, "True", Reason.PARTITIONS_STUCK, "Partitions have uncommitted records, and no progress for `monitoring.alerts.stuckSeconds`."),
        (_STUCK, "False", Reason.PARTITIONS_PROGRESS, "Every partition has an owner that makes progress, or has nothing to do."),
        (_STUCK, "False", Reason.APPLICATION_MISSING, "No partition has had uncommitted records without progress for so long yet, but the sidecar of an owner has no application."),
        (_STUCK, "False", Reason.SUSPENDED, "`suspend` is true: no progress is expected."),
        (_STUCK, "False", Reason.RESET_IN_PROGRESS, "Offsets are being reset: no progress is expected."),
        (_STUCK, "False", Reason.SCALED_TO_ZERO, "The workload has no replicas: no progress is expected."),
        (_STUCK, "Unknown", Reason.PARTITIONS_UNOWNED, "Partitions are assigned to no member, and no owned one is stuck."),
        (_STUCK, "Unknown", Reason.PROGRESS_UNKNOWN, "The progress of at least one partition is not known, and no known one is stuck."),
        (_SCALING, "False", Reason.AUTOSCALING_DISABLED, "Rota does not scale the workload: `spec.replicas` or the workload's own number applies."),
        (_SCALING, "False", Reason.FOREIGN_AUTOSCALER, "A HorizontalPodAutoscaler, or KEDA through one, scales the workload itself, or the ConsumerGroup although `autoscaling.enabled` is true; the message names it. Rota scales nothing meanwhile."),
        (_SCALING, "False", Reason.NOT_ACCEPTED, "The ConsumerGroup is not accepted, or is being deleted; see `Ready`. The number of replicas stays."),
        (_SCALING, "False", Reason.DRY_RUN, "`autoscaling.dryRun` is true: decisions are written to `status.scaling`, and `spec.replicas` or the workload's own number applies."),
        (_SCALING, "False", Reason.SUSPENDED, "`suspend` is true: the backlog says nothing, so the number of replicas stays."),
        (_SCALING, "False", Reason.RESET_IN_PROGRESS, "Offsets are being reset: the number of replicas stays until the members read again."),
        (_SCALING, "True", Reason.METRICS_KNOWN, "Rota scales the workload by the group's load; `status.scaling` has its decisions."),
        (_SCALING, "Unknown", Reason.METRICS_UNKNOWN, "The load of the group is unknown; the message says why. The number of replicas stays, or is that of `autoscaling.fallback`."),
        (_RESET, "False", Reason.NOT_REQUESTED, "`offsets.reset` is not set."),
        (_RESET, "False", Reason.RESET_WAITING, "The reset has not begun; the message says what it waits for."),
        (_RESET, "False", Reason.RESET_REJECTED, "The reset cannot be executed as it is specified; the message says why. Nothing has changed."),
        (_RESET, "False", Reason.RESET_NOT_EXECUTED, "The reset was there when the ConsumerGroup was created. Set a new `requestId` to execute it."),
        (_RESET, "False", Reason.DRY_RUN_COMPLETED, "The plan is in the ConfigMap that the message names. Set `dryRun: false` to execute it."),
        (_RESET, "True", Reason.RESET_IN_PROGRESS, "The reset is executed; the message has its phase."),
        (_RESET, "False", Reason.RESET_COMPLETED, "All offsets of the plan are set. The message names the ConfigMap with the plan that undoes the reset."),
        (_RESET, "False", Reason.RESET_FAILED, "The reset ended before all offsets were set, and the members read again; the message says which ones, and what to do."),
        (_RESET, "False", Reason.ALREADY_EXECUTED, "A reset with this `requestId` was executed before. Set a new one to reset again."),
    )
)  # fmt: skip
