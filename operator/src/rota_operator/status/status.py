"""The entry points of this core: `status_of`, and `due`, which bounds how often a status is written."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rota_operator.overview.view import EventKind, GroupView
from rota_operator.reconcile.observed import Object
from rota_operator.resets.machine import FirstSeen, step
from rota_operator.spec.conditions import Phase, Reason
from rota_operator.spec.status import (
    Condition,
    ConsumerGroupStatus,
    Lag,
    LastRebalance,
    OffsetReset,
    Placement,
    Scaling,
    StatusModel,
)
from rota_operator.spec.validation import InvalidSpec, parse_model
from rota_operator.status.conditions import Evidence, conditions_of, evidence_of
from rota_operator.status.inputs import ApplicationState, StatusInputs

WRITE_INTERVAL_MS = 10_000
PLACEMENTS_MAX = 100
TEXT_LENGTH_MAX = 256
# Reasons for which the spec is not followed.
REFUSING = frozenset({
    Reason.INVALID_SPEC, Reason.UNSUPPORTED_FIELD, Reason.IMMUTABLE_FIELD, Reason.UNSUPPORTED_KUBERNETES,
    Reason.INVALID_TARGET, Reason.TARGET_CLAIMED, Reason.GROUP_ID_CLAIMED, Reason.NAME_TAKEN, Reason.SECRET_NOT_FOUND,
    Reason.SPARK_NOT_INSTALLED,
    Reason.FIELD_CONFLICT, Reason.FORBIDDEN, Reason.REQUEST_REFUSED, Reason.CLUSTER_CHANGED,
})  # fmt: skip


def status_of(inputs: StatusInputs) -> ConsumerGroupStatus:
    """Return the status of a ConsumerGroup."""
    evidence, former = evidence_of(inputs), inputs.former
    decision, pods, group = inputs.decision, inputs.pods, evidence.group
    conditions = conditions_of(evidence, former.conditions)
    return ConsumerGroupStatus(
        observed_generation=inputs.resource["metadata"].get("generation", 0),
        phase=_phase(evidence, conditions).value,
        group_id=decision.group_id,
        coordination=decision.coordination,
        cluster_id=former.cluster_id or inputs.cluster_id,
        sidecar_image=decision.sidecar_image,
        selector=decision.selector,
        replicas=None if pods is None else pods.replicas,
        ready_replicas=None if pods is None else pods.ready,
        desired_replicas=decision.desired_replicas,
        members=None if group is None else evidence.member_count,
        partitions=None if group is None else len(group.partitions) + group.partitions_left_out,
        unowned_partitions=None if group is None else group.unowned,
        generation=None if group is None else group.generation,
        lag=Lag() if evidence.view is None else _lag(evidence.view),
        rebalance=former.rebalance
        if inputs.group is None
        else _last_rebalance(inputs.group, former.rebalance),
        scaling=_scaling(inputs),
        offset_reset=_offset_reset(inputs),
        placements=tuple(_placements(group, inputs.applications))[:PLACEMENTS_MAX],
        conditions=conditions,
    )


def due(
    former: ConsumerGroupStatus, status: ConsumerGroupStatus, last_write_ms: int | None, now_ms: int
) -> int | None:
    """
    Return when a status is to be written, in ms; None: never, because it is what it was.

    At once if a condition, the observed generation or a pinned value changes, else WRITE_INTERVAL_MS after the last write.
    `last_write_ms` is None if this process has not written yet.
    """
    if former == status:
        return None
    if last_write_ms is None or _urgent(former) != _urgent(status):
        return now_ms
    return max(now_ms, last_write_ms + WRITE_INTERVAL_MS)


def _urgent(status: ConsumerGroupStatus) -> object:
    conditions = {
        each.type: (each.status, each.reason, each.observed_generation) for each in status.conditions
    }
    return (
        conditions,
        status.observed_generation,
        status.group_id,
        status.coordination,
        status.cluster_id,
        status.sidecar_image,
        status.selector,
        status.desired_replicas,
        status.offset_reset,
        # The plan applies spec.replicas until the first decision is there, and the next leader waits from the last change on.
        bool(status.scaling.decisions),
        status.scaling.last_scale_time,
        status.scaling.last_rebalance_time,
    )


def read_status(resource: Object) -> ConsumerGroupStatus:
    """Read the status that a ConsumerGroup has; empty if it has none, or one that this version does not know."""
    try:
        return parse_model(ConsumerGroupStatus, resource.get("status") or {}, ("status",))
    except InvalidSpec:
        return ConsumerGroupStatus()


def status_json(status: ConsumerGroupStatus) -> Mapping[str, Any]:
    """Return a status as it is written: unknown and empty values are absent."""
    return model_json(status)


def model_json(model: StatusModel) -> Mapping[str, Any]:
    """Return a status, or a part of it, as it is written."""
    written: Mapping[str, Any] = _pruned(model.model_dump(mode="json", by_alias=True, exclude_none=True))
    return written


def _pruned(value: Any) -> Any:  # noqa: ANN401  any JSON value
    """Remove empty values of objects; elements of lists stay whole, as `metav1.Condition` has a message in any case."""
    if not isinstance(value, dict):
        return value
    below = {name: _pruned(each) for name, each in value.items()}
    return {name: each for name, each in below.items() if each not in ("", {}, [])}


def _phase(evidence: Evidence, conditions: tuple[Condition, ...]) -> Phase:
    (ready, rebalancing, _, stuck, *_) = conditions
    fixed = {
        Reason.DELETING: Phase.DELETING,
        Reason.TARGET_NOT_FOUND: Phase.PENDING,
        Reason.SUSPENDED: Phase.SUSPENDED,
        Reason.SCALED_TO_ZERO: Phase.IDLE,
    }.get(Reason(ready.reason))
    if fixed is not None:
        return fixed
    if ready.reason in REFUSING:
        return Phase.REFUSED
    if evidence.group is None:
        return Phase.UNKNOWN
    if rebalancing.status == "True":
        return Phase.REBALANCING
    if stuck.status == "True":
        return Phase.STUCK
    return Phase.STABLE if evidence.member_count else Phase.JOINING


def _lag(group: GroupView) -> Lag:
    """Return the lag over owned and unowned partitions; a sum or maximum with an unknown part is unknown."""
    known = [each.lag_records for each in group.partitions if each.lag_records is not None]
    is_whole = known and len(known) == len(group.partitions) and not group.partitions_left_out
    return Lag(
        total=group.lag_records,
        max=max(known) if is_whole else None,
        max_seconds=None if group.lag_seconds is None else int(group.lag_seconds),
    )


def _last_rebalance(group: GroupView, former: LastRebalance) -> LastRebalance:
    for event in group.history:
        if event.kind is EventKind.REBALANCE:
            return LastRebalance(
                reason=event.message[:TEXT_LENGTH_MAX],
                duration_ms=event.pause_ms,
                moved_partitions=event.moved,
            )
    # The operator has started since.
    return former


def _scaling(inputs: StatusInputs) -> Scaling:
    """Return the autoscaler's record: what a former life has left stays until this one has looked at the group."""
    if inputs.spec is not None and not inputs.spec.autoscaling.enabled:
        return Scaling()
    return inputs.former.scaling if inputs.autoscaler is None else inputs.autoscaler.scaling


def _offset_reset(inputs: StatusInputs) -> OffsetReset | None:
    """Return the record of the reset, which `resets.machine` changes; here a reset is recorded that was there from the beginning."""
    former, spec = inputs.former, inputs.spec
    if former.observed_generation or spec is None or spec.offsets.reset is None:
        return former.offset_reset
    return step(former.offset_reset, FirstSeen(spec.offsets.reset))


def _placements(group: GroupView | None, applications: Sequence[ApplicationState]) -> Iterator[Placement]:
    """Yield the members by name, each with its SparkApplication, then the SparkApplications that are no members."""
    by_pod = {each.pod: each for each in applications if each.pod}
    members = frozenset[str]()
    if group is not None:
        lags = {f"{each.topic}-{each.partition}": each.lag_records for each in group.partitions}
        joined = sorted(
            (each for each in group.members if each.member_id is not None), key=lambda member: member.name
        )
        members = frozenset(each.name for each in joined)
        for member in joined[:PLACEMENTS_MAX]:
            held = [lags.get(partition) for partition in member.partitions]
            known = [lag for lag in held if lag is not None]
            application = by_pod.get(member.name)
            yield Placement(
                pod_name=member.name,
                member_id=member.member_id or "",
                partitions=len(member.partitions),
                lag=sum(known) if len(known) == len(held) else None,
                application=None if application is None else application.name,
                application_state=None if application is None else application.state,
            )
    for each in applications:
        if each.pod not in members:
            yield Placement(pod_name=each.pod, application=each.name, application_state=each.state)
