"""
The entry point of this core: `plan` decides what to change in the cluster for one ConsumerGroup.

The order of its steps is the order of the actions: the finalizer first, so that whatever is done can be undone; a workload
that is claimed no longer is released; then the ConfigMap, which pods read when they start; then the workload itself.
At rest a plan holds `Configure` alone, which writes nothing to the cluster.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rota_operator.plan.supported import Backend, resource_errors, sidecar_errors, unsupported
from rota_operator.reconcile.actions import (
    CLAIM_LABEL,
    Action,
    AddFinalizer,
    CommitInitialOffsets,
    Configure,
    RemoveFinalizer,
    RestoreGracePeriod,
    ScaleWorkload,
)
from rota_operator.reconcile.adoption import adoption, grace_period, termination_s
from rota_operator.reconcile.claims import lost_group_id, lost_target
from rota_operator.reconcile.decision import Decision, Refusal, Remark, pinned_decision
from rota_operator.reconcile.group import ROTA_COORDINATION, Group, claim_of, group_of, identity_of
from rota_operator.reconcile.instances import InstancePool
from rota_operator.reconcile.observed import Object, Observed
from rota_operator.reconcile.owned_objects import config_map_actions, disruption_budget_actions, name_problem
from rota_operator.reconcile.ownership import is_applied
from rota_operator.reconcile.release import plan_deletion, release, wants_group_deleted
from rota_operator.reconcile.rollouts import rollout_remarks
from rota_operator.reconcile.scaling import applied_replicas, is_autoscaled
from rota_operator.reconcile.selectors import selector_text
from rota_operator.reconcile.settings import settings_hash, settings_text
from rota_operator.reconcile.sidecar import SidecarSpec, needs_instances, rack_problem, secret_files
from rota_operator.reconcile.spark.applications import (
    applications,
    has_applications,
    removal,
    spark_problem,
)
from rota_operator.reconcile.spark.kinds import SPARK_KIND
from rota_operator.reconcile.strategy import Offer, names_in, offer, written_in
from rota_operator.reconcile.successions import MemberPool
from rota_operator.reconcile.target import (
    Container,
    container_of,
    has_own_pre_stop,
    is_grace_period_confirmed,
    is_grace_period_in_manifest,
    owner_grace_s,
    ref_of,
    replicas_of,
    resource_version,
    sidecar_image_of,
    target_problem,
)
from rota_operator.resets.machine import is_suspending
from rota_operator.spec.conditions import ConditionType, Reason
from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.validation import FieldError, InvalidSpec

# Native sidecars are on by default since then.
KUBERNETES_MIN = (1, 29)
# A label's value has no more characters, and the name becomes one.
NAME_LENGTH_MAX = 63


@dataclass(frozen=True, slots=True)
class Accepted:
    """A ConsumerGroup that can run: its workload exists and is its own."""

    group: Group
    target: Object
    app: Container
    sidecar: SidecarSpec


def plan(observed: Observed) -> Decision:
    """Decide for one ConsumerGroup. Raises nothing: what is wrong with it is a refusal in the decision."""
    if identity_of(observed.resource).is_deleted:
        return plan_deletion(observed)
    try:
        group = group_of(observed.resource)
    except InvalidSpec as error:
        return _refused(observed, Refusal(Reason.INVALID_SPEC, _first_of(error.errors)))
    if (refusal := _spec_problem(observed, group)) is not None:
        return _refused(observed, refusal)
    if (refusal := lost_group_id(claim_of(observed.resource), observed.claims)) is not None:
        return _refused(observed, refusal, observed.adopted, removal(observed))
    if group.spec.spark.enabled:
        return _with_applications(observed, group)
    if (refusal := lost_target(claim_of(observed.resource), observed.claims)) is not None:
        return _refused(observed, refusal, observed.adopted)
    former = [each for each in observed.adopted if ref_of(each) != group.target]
    accepted = _accepted(observed, group)
    if isinstance(accepted, Refusal):
        return _refused(observed, accepted, former)
    return Decision(
        actions=tuple(_actions(observed, accepted, former)),
        remarks=tuple(_remarks(observed, accepted)),
        group_id=group.group_id,
        coordination=group.coordination,
        sidecar_image=accepted.sidecar.image,
        selector=selector_text(accepted.target["spec"]["selector"]),
        desired_replicas=_desired_replicas(observed, group, accepted.target),
        is_autoscaled=is_autoscaled(observed, group.spec),
    )


def _with_applications(observed: Observed, group: Group) -> Decision:
    """Decide for a group whose members are SparkApplications."""
    refusal = (
        spark_problem(observed, group) or name_problem(observed, group) or _secret_problem(observed, group)
    )
    if refusal is not None:
        return _refused(observed, refusal)
    image = group.spec.sidecar.image or _pinned_image(observed) or observed.settings.sidecar_image
    sidecar = SidecarSpec(group, SPARK_KIND, image, observed.settings, observed.version)
    found = applications(observed, sidecar)
    offered = _offer(observed, group.spec, has_pods=bool(observed.spark.drivers))
    spec = _suspended(observed, _offering(group.spec, offered))
    return Decision(
        actions=(
            *(() if group.identity.has_finalizer else (AddFinalizer(),)),
            *(action for workload in observed.adopted for action in release(workload)),
            *config_map_actions(observed, group, spec),
            *found.actions,
            _configure(group, spec, SPARK_KIND, found.wanted),
        ),
        remarks=(*_sidecar_remarks(sidecar, offered), *found.remarks),
        group_id=group.group_id,
        coordination=group.coordination,
        sidecar_image=image,
        selector=selector_text({"matchLabels": {CLAIM_LABEL: group.identity.uid}}),
        desired_replicas=found.wanted,
    )


def _spec_problem(observed: Observed, group: Group) -> Refusal | None:
    """Return why a spec is not followed at all; nothing changes then."""
    name = group.identity.name
    if len(name) > NAME_LENGTH_MAX:
        return Refusal(
            Reason.INVALID_SPEC,
            f"metadata.name must have at most {NAME_LENGTH_MAX} characters, because it becomes a label",
        )
    if errors := unsupported(group.spec, Backend.CLUSTER):
        return Refusal(Reason.UNSUPPORTED_FIELD, _first_of(errors))
    if (
        observed.kafka_problem
        and group.spec.autoscaling.enabled
        and not group.spec.autoscaling.min_replica_count
    ):
        return Refusal(
            Reason.UNSUPPORTED_FIELD,
            "spec.autoscaling.minReplicaCount must be 1 or more, because the lag of a group on Kafka without members is unknown: "
            f"{observed.kafka_problem}",
        )
    if errors := [*sidecar_errors(group.spec), *resource_errors(group.spec)]:
        return Refusal(Reason.INVALID_SPEC, _first_of(errors))
    status = observed.resource.get("status") or {}
    for path, key, value in (
        ("spec.groupId", "groupId", group.group_id),
        ("spec.coordination", "coordination", group.coordination),
    ):
        if status.get(key) not in (None, "", value):
            return Refusal(
                Reason.IMMUTABLE_FIELD,
                f"{path} must not change from {status[key]} to {value}; create another ConsumerGroup",
            )
    if observed.version < KUBERNETES_MIN:
        return Refusal(
            Reason.UNSUPPORTED_KUBERNETES,
            f"Kubernetes {'.'.join(map(str, observed.version))} has no native sidecars; upgrade to "
            f"{'.'.join(map(str, KUBERNETES_MIN))} or newer",
        )
    return None


def _accepted(observed: Observed, group: Group) -> Accepted | Refusal:
    """Check the objects that the group needs."""
    target = observed.target
    if target is None:
        assert group.target is not None, "without a workload a spec is unsupported"
        return Refusal(
            Reason.TARGET_NOT_FOUND,
            f"spec.scaleTargetRef: {group.target.kind} {group.target.name} does not exist; create it",
        )
    if (refusal := target_problem(group.spec, target) or name_problem(observed, group)) is not None:
        return refusal
    if (refusal := _secret_problem(observed, group)) is not None:
        return refusal
    app = container_of(group.spec, target)
    assert app is not None, "a workload without the container is refused"
    image = _image(observed, group, target)
    sidecar = SidecarSpec(group, target["kind"], image, observed.settings, observed.version)
    return Accepted(group, target, app, sidecar)


def _secret_problem(observed: Observed, group: Group) -> Refusal | None:
    """Return a refusal if a Secret is missing that the spec names now."""
    named = {
        text
        for each in secret_files(group.spec.auth)
        for text in (each.key.name, f"{each.key.name}/{each.key.key}")
    }
    missing = sorted(named & set(observed.missing_secrets))
    if not missing:
        return None
    return Refusal(
        Reason.SECRET_NOT_FOUND,
        f"spec.auth: missing Secrets or keys: {', '.join(missing)}; create them in namespace {group.identity.namespace}",
    )


def _image(observed: Observed, group: Group, target: Object) -> str:
    """
    Return the sidecar's image: an upgrade of the operator alone changes none that is in use.

    The workload is asked too, because the operator may have ended between adopting it and writing the status.
    """
    pinned = _pinned_image(observed)
    return group.spec.sidecar.image or pinned or sidecar_image_of(target) or observed.settings.sidecar_image


def _pinned_image(observed: Observed) -> str:
    pinned: str = (observed.resource.get("status") or {}).get("sidecarImage", "")
    return pinned


def _actions(observed: Observed, accepted: Accepted, former: Sequence[Object]) -> Iterator[Action]:
    group, target = accepted.group, accepted.target
    if not group.identity.has_finalizer:
        yield AddFinalizer()
    for workload in former:
        yield from release(workload)
    spec = _suspended(observed, _offering(group.spec, _workload_offer(observed, accepted)))
    yield from config_map_actions(observed, group, spec)
    yield from _adopt(accepted)
    yield from disruption_budget_actions(observed, group, target)
    yield from _initial_offsets(observed, accepted)
    yield from _scale(observed, accepted)
    yield _configure(group, spec, target["kind"], _desired_replicas(observed, group, target))


def _configure(group: Group, spec: ConsumerGroupSpec, kind: str, replicas: int) -> Configure:
    """Return the settings of the sidecars, whence they get their instances, and how many of them join."""
    pool = _instance_pool(group, kind, replicas)
    member_pool = _member_pool(group, kind, replicas)
    return Configure(group.group_id, settings_text(spec), settings_hash(group.spec), pool, member_pool)


def _workload_offer(observed: Observed, accepted: Accepted) -> Offer:
    target = accepted.target
    has_pods = replicas_of(target) > 0 or bool((target.get("status") or {}).get("replicas"))
    return _offer(observed, accepted.group.spec, has_pods=has_pods)


def _offer(observed: Observed, spec: ConsumerGroupSpec, *, has_pods: bool) -> Offer:
    """Return the strategies that the sidecars are to offer now."""
    wanted = names_in(spec.assignment.strategy)
    return offer(wanted, written_in(observed.config_map), observed.strategies, has_pods=has_pods)


def _offering(spec: ConsumerGroupSpec, offered: Offer) -> ConsumerGroupSpec:
    """Return the spec of the sidecars: with the strategies that they are to offer."""
    if offered.names == names_in(spec.assignment.strategy):
        return spec
    assignment = spec.assignment.model_copy(update={"strategy": offered.text})
    return spec.model_copy(update={"assignment": assignment})


def _suspended(observed: Observed, spec: ConsumerGroupSpec) -> ConsumerGroupSpec:
    """
    Return the spec of the sidecars: suspended while offsets are reset.

    Whatever else changes in the settings meanwhile, they suspend the members until the reset is done.
    """
    if not is_suspending(observed.resource.get("status") or {}):
        return spec
    return spec.model_copy(update={"suspend": True})


def _instance_pool(group: Group, kind: str, replicas: int) -> InstancePool | None:
    """Return the instances that pods get one by one, because their names change."""
    if not needs_instances(group.spec, kind):
        return None
    return InstancePool(
        group.identity.name,
        replicas,
        group.spec.membership.silence_ms_max,
        termination_s(group.spec) * 1000,
    )


def _member_pool(group: Group, kind: str, replicas: int) -> MemberPool | None:
    """Return how many members are wanted, where pods of a rollout come before others go: a Deployment's, of dynamic members."""
    membership = group.spec.membership
    if kind != "Deployment" or membership.static:
        return None
    return MemberPool(replicas, membership.silence_ms_max)


def _adopt(accepted: Accepted) -> Iterator[Action]:
    """Yield the change of the workload, if there is one."""
    target = accepted.target
    if is_grace_period_confirmed(target) and grace_period(accepted.sidecar, target).seconds is None:
        # Without it, leaving the field out would remove it. The workload changes by this, so it is adopted by the next plan.
        yield RestoreGracePeriod(ref_of(target), owner_grace_s(target), resource_version(target))
        return
    adopt = adoption(accepted.sidecar, target, accepted.app)
    if not is_applied(target, adopt.fields):
        yield adopt


def _scale(observed: Observed, accepted: Accepted) -> Iterator[Action]:
    """Yield the change of the number of pods; an autoscaler's number stays."""
    replicas = applied_replicas(observed, accepted.group.spec)
    if replicas is not None and replicas != replicas_of(accepted.target):
        yield ScaleWorkload(ref_of(accepted.target), replicas)


def _initial_offsets(observed: Observed, accepted: Accepted) -> Iterator[Action]:
    if _needs_initial_offsets(observed, accepted):
        yield CommitInitialOffsets(accepted.group.group_id)


def _needs_initial_offsets(observed: Observed, accepted: Accepted) -> bool:
    """
    Return whether a group that no member will join has no offsets: its start would move with the topics' ends.

    That a group on Kafka has no members is known only where the operator has credentials for the cluster, and can commit.
    """
    group = accepted.group
    return (
        _desired_replicas(observed, group, accepted.target) == 0
        and observed.members == 0
        and observed.is_new is True
        and group.spec.offsets.initial_offset != "none"
    )


def _desired_replicas(observed: Observed, group: Group, target: Object) -> int:
    """Return the number of pods that is to be: the one that is applied, or the workload's own."""
    replicas = applied_replicas(observed, group.spec)
    return replicas_of(target) if replicas is None else replicas


def _remarks(observed: Observed, accepted: Accepted) -> Iterator[Remark]:
    target, app = accepted.target, accepted.app
    yield from _sidecar_remarks(accepted.sidecar, _workload_offer(observed, accepted))
    if has_own_pre_stop(app, target):
        yield Remark(
            ConditionType.READY,
            Reason.PRE_STOP_KEPT,
            f"container {app['name']} has a preStop of its own, so it does not wait for the drain; remove it, or "
            "finish in-flight records in it",
        )
    owner_s, needed_s = owner_grace_s(target), termination_s(accepted.group.spec)
    if owner_s < needed_s and is_grace_period_in_manifest(target):
        yield Remark(
            ConditionType.READY,
            Reason.GRACE_PERIOD_RAISED,
            f"terminationGracePeriodSeconds {owner_s} of {target['kind']} {target['metadata']['name']} is too short for the "
            f"drain; Rota raises it to {needed_s} after each kubectl apply, which restarts the pods; set it to {needed_s}",
        )
    replicas = _desired_replicas(observed, accepted.group, target)
    yield from rollout_remarks(accepted.group.spec, target, replicas, needed_s)
    if _is_start_unknown(observed, accepted):
        yield Remark(
            ConditionType.READY,
            Reason.NO_INITIAL_OFFSETS,
            "the group has no member, so its initial offsets are committed when the first one joins",
        )
    yield from _autoscaler_remarks(observed, accepted)


def _autoscaler_remarks(observed: Observed, accepted: Accepted) -> Iterator[Remark]:
    """Yield what other autoscalers do; one on the group is welcome unless Rota's own is enabled."""
    target = accepted.target
    if observed.autoscalers:
        yield Remark(
            ConditionType.SCALING_ACTIVE,
            Reason.FOREIGN_AUTOSCALER,
            f"HorizontalPodAutoscaler {', '.join(sorted(observed.autoscalers))} scales {target['kind']} "
            f"{target['metadata']['name']}, so spec.replicas is not applied; let it scale the ConsumerGroup instead",
        )
    elif observed.group_autoscalers and accepted.group.spec.autoscaling.enabled:
        yield Remark(
            ConditionType.SCALING_ACTIVE,
            Reason.FOREIGN_AUTOSCALER,
            f"HorizontalPodAutoscaler {', '.join(sorted(observed.group_autoscalers))} scales the ConsumerGroup, so Rota does not; "
            "delete it, or set spec.autoscaling.enabled to false",
        )


def _sidecar_remarks(sidecar: SidecarSpec, offered: Offer) -> Iterator[Remark]:
    """Yield the restrictions of the sidecars, in whatever pods."""
    if problem := rack_problem(sidecar):
        yield Remark(ConditionType.READY, Reason.NO_RACK, problem)
    if offered.waits_for:
        yield Remark(
            ConditionType.READY,
            Reason.STRATEGY_CHANGING,
            f"the assignment strategy changes to {sidecar.group.spec.assignment.strategy}, and the former one stays on offer; "
            f"waiting for {offered.waits_for}",
        )


def _is_start_unknown(observed: Observed, accepted: Accepted) -> bool:
    """Return whether a group without pods may have no offsets, and the operator commits none."""
    replicas = _desired_replicas(observed, accepted.group, accepted.target)
    if replicas != 0 or observed.is_new is False:
        return False
    is_out_of_reach = accepted.group.coordination != ROTA_COORDINATION and observed.members is None
    return is_out_of_reach or observed.is_new is None


def _refused(
    observed: Observed, refusal: Refusal, former: Sequence[Object] = (), removals: Sequence[Action] = ()
) -> Decision:
    """Return a decision that changes nothing but releases workloads, and removes applications; what is pinned stays so."""
    identity = identity_of(observed.resource)
    releases = [action for workload in former for action in release(workload)]
    is_needed = (
        len(former) < len(observed.adopted)
        or has_applications(observed)
        or wants_group_deleted(observed.resource)
    )
    finalizer = [RemoveFinalizer()] if identity.has_finalizer and not is_needed else []
    return pinned_decision(observed.resource, (*releases, *removals, *finalizer), refusal)


def _first_of(errors: Sequence[FieldError]) -> str:
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{errors[0].full_message}{more}"
