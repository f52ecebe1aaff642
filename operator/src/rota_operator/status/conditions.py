"""
Derives the conditions of a ConsumerGroup. Reasons are those of `rota_operator.spec.conditions`, which documents each.

Messages hold nothing that changes with time alone, so a group at rest gets no writes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rota_operator.overview.description import UNKNOWN
from rota_operator.overview.view import GroupView
from rota_operator.reconcile.group import KAFKA_COORDINATION
from rota_operator.resets.machine import suspends
from rota_operator.spec.conditions import ConditionType, Reason
from rota_operator.spec.model import Alerts, ConsumerGroupSpec
from rota_operator.spec.status import Condition
from rota_operator.status.inputs import AutoscalerState, StatusInputs
from rota_operator.status.offset_reset import reset_state
from rota_operator.status.partitions import Judge, Judgement, listed
from rota_operator.status.views import is_reporting, reported, subscribed

Status = Literal["True", "False", "Unknown"]
REBALANCING_STATES = ("PreparingRebalance", "CompletingRebalance")
MESSAGE_LENGTH_MAX = 1024


class Verdict(NamedTuple):
    """Status of a condition, and why."""

    status: Status
    reason: Reason
    message: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Inputs, and what several conditions need of them."""

    inputs: StatusInputs
    # None: the spec is invalid.
    spec: ConsumerGroupSpec | None
    # Of subscribed and owned partitions; None: there is none.
    view: GroupView | None
    # The same view; None while neither the coordinator nor, on Kafka, any sidecar describes the group.
    group: GroupView | None
    judgement: Judgement

    @property
    def alerts(self) -> Alerts:
        """Thresholds."""
        return Alerts() if self.spec is None else self.spec.monitoring.alerts

    @property
    def is_suspended(self) -> bool:
        """True if members are to read nothing."""
        return self.spec is not None and self.spec.suspend

    @property
    def is_reset(self) -> bool:
        """True if members are to read nothing because their offsets are being reset."""
        return suspends(self.inputs.former.offset_reset)

    @property
    def is_scaled_to_zero(self) -> bool:
        """True if there are no pods, and there are to be none."""
        pods = self.inputs.pods
        return self.inputs.decision.desired_replicas == 0 and (pods is None or pods.replicas == 0)

    @property
    def member_count(self) -> int:
        """Members of the group."""
        return 0 if self.group is None else sum(bool(each.member_id) for each in self.group.members)


def evidence_of(inputs: StatusInputs) -> Evidence:
    """Prepare the view, and judge its partitions."""
    spec = inputs.spec
    alerts = Alerts() if spec is None else spec.monitoring.alerts
    view = inputs.group
    if view is not None and spec is not None:
        view = subscribed(view, spec)
    is_on_kafka = inputs.decision.coordination == KAFKA_COORDINATION
    if view is not None and view.state == UNKNOWN and is_on_kafka:
        view = reported(view)
    if view is None or view.state == UNKNOWN:
        return Evidence(inputs, spec, view, None, Judgement())
    was_ready = any(
        (each.type, each.status) == (ConditionType.READY, "True") for each in inputs.former.conditions
    )
    judge = Judge(inputs.progress, alerts.stuck_seconds, inputs.now_ms, was_ready)
    judgement = judge.judge(view)
    if is_on_kafka and inputs.pods is not None:
        # Partitions of a member that does not report are in no list.
        missing = inputs.pods.replicas - sum(map(is_reporting, view.members))
        judgement.silent += [f"{missing} pods"] if missing > 0 else []
    return Evidence(inputs, spec, view, view, judgement)


def conditions_of(evidence: Evidence, previous: Sequence[Condition]) -> tuple[Condition, ...]:
    """Return all conditions; the time of a transition moves only with the status."""
    former = {each.type: each for each in previous}
    generation: int = evidence.inputs.resource["metadata"].get("generation", 0)
    return tuple(
        Condition(
            type=kind.value,
            status=verdict.status,
            reason=verdict.reason.value,
            message=_message(evidence, kind, verdict.message),
            last_transition_time=before.last_transition_time
            if (before := former.get(kind)) is not None and before.status == verdict.status
            else evidence.inputs.now,
            observed_generation=generation,
        )
        for kind, verdict in _verdicts(evidence)
    )


def _verdicts(evidence: Evidence) -> Iterator[tuple[ConditionType, Verdict]]:
    yield ConditionType.READY, ready(evidence)
    yield ConditionType.REBALANCING, rebalancing(evidence)
    yield ConditionType.LAGGING, lagging(evidence)
    yield ConditionType.STUCK, stuck(evidence)
    yield ConditionType.SCALING_ACTIVE, scaling_active(evidence)
    yield ConditionType.OFFSET_RESET, offset_reset(evidence)


def _message(evidence: Evidence, kind: ConditionType, message: str) -> str:
    """Add the remarks of the decision, and of the sidecars' versions."""
    remarks = [
        f"{each.reason}: {each.message}"
        for each in evidence.inputs.decision.remarks
        if each.condition == kind and each.reason not in (Reason.FOREIGN_AUTOSCALER,)
    ]
    if kind is ConditionType.READY:
        remarks += _other_versions(evidence)
    text = ". ".join(each for each in (message, *remarks) if each)
    return text if len(text) <= MESSAGE_LENGTH_MAX else f"{text[: MESSAGE_LENGTH_MAX - 1]}…"


def _other_versions(evidence: Evidence) -> Iterator[str]:
    sidecars = evidence.inputs.sidecars
    if others := sidecars.of_other_versions:
        named = listed(f"{pod} {version or '(unknown)'}" for pod, version in sorted(others.items()))
        yield (
            f"{Reason.SIDECAR_VERSION}: the operator's version is {sidecars.operator_version}, and that of sidecars: {named}; "
            "set spec.sidecar.image to one of the operator's version"
        )


def ready(evidence: Evidence) -> Verdict:
    """Decide Ready: True only while every partition has an owner that makes progress."""
    return _refusal(evidence) or _without_partitions(evidence) or _progress(evidence)


def _refusal(evidence: Evidence) -> Verdict | None:
    """Return why the spec is not followed."""
    inputs = evidence.inputs
    if "deletionTimestamp" in inputs.resource["metadata"]:
        return Verdict("False", Reason.DELETING)
    if (refusal := inputs.decision.refusal) is not None:
        return Verdict("False", Reason(refusal.reason), refusal.message)
    # A server that does not answer now says nothing about the group; if it is the coordinator, its view expires.
    if (failure := inputs.failure) is not None and failure.reason != Reason.UNAVAILABLE:
        return Verdict("False", Reason(failure.reason), failure.message)
    pinned = inputs.former.cluster_id
    if pinned and inputs.cluster_id not in ("", pinned):
        return Verdict(
            "False",
            Reason.CLUSTER_CHANGED,
            f"spec.bootstrapServers lead to cluster {inputs.cluster_id}, and the group is on cluster {pinned}; "
            "correct the addresses, or create another ConsumerGroup",
        )
    if refused := inputs.sidecars.refused_settings:
        named = listed(f"{pod}: spec.{error}" for pod, error in sorted(refused.items()))
        return Verdict("False", Reason.SETTINGS_REFUSED, f"{named}; the former settings stay in force there")
    if fenced := inputs.sidecars.fenced:
        return Verdict("False", Reason.INSTANCE_FENCED, ". ".join(fenced[pod] for pod in sorted(fenced)))
    return _suspension(evidence)


def _suspension(evidence: Evidence) -> Verdict | None:
    """Return why the members read nothing."""
    if evidence.is_suspended:
        return Verdict("False", Reason.SUSPENDED, "spec.suspend is true")
    if evidence.is_reset:
        return Verdict(
            "False", Reason.RESET_IN_PROGRESS, "offsets are being reset; the members resume afterwards"
        )
    return None


def _without_partitions(evidence: Evidence) -> Verdict | None:
    """Return why the group has no owned partitions at all."""
    pods = evidence.inputs.pods
    if pods is not None and pods.problem and pods.ready == 0:
        return Verdict("False", Reason.PODS_REFUSED, pods.problem)
    if evidence.is_scaled_to_zero:
        return Verdict("False", Reason.SCALED_TO_ZERO, "the workload has no replicas")
    if evidence.group is None:
        return _unreachable(evidence)
    if not evidence.member_count:
        counts = "" if pods is None else f"; {pods.ready} of {pods.replicas} pods are ready"
        # Such as a coordinator that refuses the group to this namespace; pods of one workload have the same.
        errors = listed(sorted({each.last_error for each in evidence.group.members if each.last_error}))
        return Verdict(
            "False",
            Reason.NO_MEMBERS,
            f"the group has no members{counts}{f'. Sidecars: {errors}' if errors else ''}",
        )
    if not evidence.group.partitions:
        problems = listed(sorted({problem for each in evidence.group.members for problem in each.problems}))
        return Verdict("False", Reason.NO_PARTITIONS, problems or "the group's topics have no partitions")
    return None


def _unreachable(evidence: Evidence) -> Verdict:
    failure = evidence.inputs.failure
    if failure is not None and failure.reason == Reason.UNAVAILABLE:
        return Verdict("Unknown", Reason.UNAVAILABLE, failure.message)
    if evidence.inputs.decision.coordination == KAFKA_COORDINATION:
        return Verdict("Unknown", Reason.SIDECAR_SILENT, _without_reports(evidence))
    return _undescribed(evidence)


def _undescribed(evidence: Evidence) -> Verdict:
    """Return why the coordinator does not describe the group."""
    problem = evidence.inputs.problem
    if problem.is_refusal:
        return Verdict(
            "Unknown",
            Reason.COORDINATOR_REFUSED,
            f"the group's coordinator refuses the operator: {problem.message}",
        )
    why = f": {problem.message}" if problem.message else ""
    return Verdict("Unknown", Reason.COORDINATOR_UNREACHABLE, f"the group's coordinator does not answer{why}")


def _without_reports(evidence: Evidence) -> str:
    """Return why a group on Kafka is not known."""
    return "; ".join(filter(None, ("no sidecar of the group reports", evidence.inputs.kafka_problem)))


def _progress(evidence: Evidence) -> Verdict:
    judgement, pods = evidence.judgement, evidence.inputs.pods
    refused = f". {Reason.PODS_REFUSED}: {pods.problem}" if pods is not None and pods.problem else ""
    if judgement.unowned:
        return Verdict(
            "False", Reason.PARTITIONS_UNOWNED, f"without an owner: {listed(judgement.unowned)}{refused}"
        )
    if judgement.stuck:
        return Verdict("False", Reason.PARTITIONS_STUCK, f"{listed(judgement.stuck)}{refused}")
    if judgement.unattended:
        return Verdict(
            "False",
            Reason.APPLICATION_MISSING,
            f"no application is attached to the sidecars of the owners of: {listed(judgement.unattended)}{refused}",
        )
    if judgement.silent:
        names = listed(sorted(judgement.silent))
        return Verdict("Unknown", Reason.SIDECAR_SILENT, f"no reports from: {names}{refused}")
    if judgement.unknown:
        return Verdict("Unknown", Reason.PROGRESS_UNKNOWN, f"{listed(judgement.unknown)}{refused}")
    return Verdict(
        "True",
        Reason.PARTITIONS_PROGRESS,
        f"{_partition_count(evidence)} partitions, each with an owner that makes progress{refused}",
    )


def _partition_count(evidence: Evidence) -> int:
    group = evidence.group
    return 0 if group is None else len(group.partitions) + group.partitions_left_out


def rebalancing(evidence: Evidence) -> Verdict:
    """Decide Rebalancing, by the coordinator's state of the group."""
    if evidence.group is None:
        if evidence.inputs.decision.coordination == KAFKA_COORDINATION:
            return Verdict("Unknown", Reason.COORDINATOR_UNREACHABLE, _without_reports(evidence))
        return _undescribed(evidence)
    if evidence.group.state in REBALANCING_STATES:
        return Verdict("True", Reason.REBALANCE_IN_PROGRESS, f"the group is in state {evidence.group.state}")
    return Verdict("False", Reason.STABLE)


def lagging(evidence: Evidence) -> Verdict:
    """Decide Lagging, over owned and unowned partitions."""
    group, threshold_s = evidence.view, evidence.alerts.lag_seconds
    partitions = () if group is None else group.partitions
    late = [
        f"{each.topic}-{each.partition}"
        for each in partitions
        if each.lag_seconds is not None and each.lag_seconds > threshold_s
    ]
    if late:
        return Verdict(
            "True", Reason.LAG_ABOVE_THRESHOLD, f"more than {threshold_s} s behind: {listed(late)}"
        )
    if group is None or group.lag_seconds is None:
        return Verdict(
            "Unknown", Reason.LAG_UNKNOWN, "" if evidence.member_count else evidence.inputs.kafka_problem
        )
    if group.lag_seconds > threshold_s:
        return Verdict("True", Reason.LAG_ABOVE_THRESHOLD, f"more than {threshold_s} s behind")
    return Verdict("False", Reason.LAG_BELOW_THRESHOLD)


def stuck(evidence: Evidence) -> Verdict:
    """Decide Stuck: uncommitted records without progress."""
    judgement = evidence.judgement
    if evidence.is_suspended:
        return Verdict("False", Reason.SUSPENDED)
    if evidence.is_reset:
        return Verdict("False", Reason.RESET_IN_PROGRESS)
    if judgement.stuck:
        return Verdict("True", Reason.PARTITIONS_STUCK, listed(judgement.stuck))
    if evidence.is_scaled_to_zero:
        return Verdict("False", Reason.SCALED_TO_ZERO)
    if judgement.unowned:
        return Verdict("Unknown", Reason.PARTITIONS_UNOWNED, f"without an owner: {listed(judgement.unowned)}")
    is_known = judgement.progressing or judgement.unattended
    if evidence.group is None or judgement.silent or judgement.unknown or not is_known:
        return Verdict("Unknown", Reason.PROGRESS_UNKNOWN)
    if judgement.unattended:
        return Verdict("False", Reason.APPLICATION_MISSING)
    return Verdict("False", Reason.PARTITIONS_PROGRESS)


def scaling_active(evidence: Evidence) -> Verdict:
    """Decide ScalingActive: True only while Rota's autoscaler knows the load and may act on it."""
    inputs, spec = evidence.inputs, evidence.spec
    for remark in inputs.decision.remarks:
        if remark.reason == Reason.FOREIGN_AUTOSCALER:
            return Verdict("False", Reason.FOREIGN_AUTOSCALER, remark.message)
    if spec is None or not spec.autoscaling.enabled:
        return Verdict("False", Reason.AUTOSCALING_DISABLED)
    if not inputs.decision.is_autoscaled:
        return Verdict("False", Reason.NOT_ACCEPTED, "see the condition Ready")
    if spec.autoscaling.dry_run:
        return Verdict("False", Reason.DRY_RUN, "spec.autoscaling.dryRun is true")
    return _suspension(evidence) or _measured(inputs.autoscaler)


def _measured(state: AutoscalerState | None) -> Verdict:
    if state is None:
        return Verdict("Unknown", Reason.METRICS_UNKNOWN, "the autoscaler has not measured the group yet")
    if state.problem:
        return Verdict("Unknown", Reason.METRICS_UNKNOWN, state.problem)
    return Verdict("True", Reason.METRICS_KNOWN)


def offset_reset(evidence: Evidence) -> Verdict:
    """Decide OffsetReset: True while a reset is executed."""
    spec = evidence.spec
    requested = None if spec is None else spec.offsets.reset
    reason, message = reset_state(evidence.inputs.former.offset_reset, requested)
    return Verdict("True" if reason is Reason.RESET_IN_PROGRESS else "False", reason, message)
