"""Takes the fields of Rota out of workloads: of one that is claimed no longer, and of all when the ConsumerGroup is deleted."""

from collections.abc import Iterator

from rota_operator.reconcile.actions import (
    Action,
    DeleteGroup,
    ReleaseWorkload,
    RemoveFinalizer,
    RestoreGracePeriod,
)
from rota_operator.reconcile.claims import lost_group_id
from rota_operator.reconcile.decision import Decision, Remark, pinned_decision
from rota_operator.reconcile.group import KAFKA_COORDINATION, Identity, claim_of, identity_of
from rota_operator.reconcile.observed import Object, Observed
from rota_operator.reconcile.spark.applications import has_applications, removal
from rota_operator.reconcile.target import (
    is_grace_period_confirmed,
    is_grace_period_ours,
    owner_grace_s,
    ref_of,
    resource_version,
    saved_grace_s,
)
from rota_operator.spec.conditions import ConditionType, Reason

DELETE_GROUP = "DeleteGroup"
_APPLICATIONS_LEFT = Remark(
    ConditionType.READY,
    Reason.APPLICATIONS_CHANGING,
    "waiting until the SparkApplications are drained and deleted",
)


def release(workload: Object) -> Iterator[Action]:
    """Yield what gives a workload back to its owner as the owner has applied it."""
    version = resource_version(workload)
    has_own = saved_grace_s(workload) is not None or is_grace_period_confirmed(workload)
    if has_own and is_grace_period_ours(workload):
        yield RestoreGracePeriod(ref_of(workload), owner_grace_s(workload), version)
        version = ""
    yield ReleaseWorkload(ref_of(workload), version)


def plan_deletion(observed: Observed) -> Decision:
    """Decide for a ConsumerGroup that is being deleted: undo everything, then remove the finalizer."""
    identity = identity_of(observed.resource)
    if not identity.has_finalizer:
        return _decision(observed)
    releases = [action for workload in observed.adopted for action in release(workload)]
    if has_applications(observed):
        return _decision(observed, *releases, *removal(observed), remark=_APPLICATIONS_LEFT)
    if not _deletes_group(observed):
        return _decision(observed, *releases, RemoveFinalizer())
    if (wait := _wait(observed)) is not None:
        return _decision(observed, *releases, remark=wait)
    return _decision(observed, DeleteGroup(_group_id(observed, identity)), RemoveFinalizer())


def wants_group_deleted(resource: Object) -> bool:
    """Return whether the group is deleted with its ConsumerGroup, by the spec as it is written."""
    spec = resource.get("spec")
    return isinstance(spec, dict) and spec.get("deletionPolicy") == DELETE_GROUP


def _deletes_group(observed: Observed) -> bool:
    """Return whether the group is to be deleted: not if it belongs to another ConsumerGroup."""
    return (
        wants_group_deleted(observed.resource)
        and lost_group_id(claim_of(observed.resource), observed.claims) is None
    )


def _wait(observed: Observed) -> Remark | None:
    """
    Return why the group cannot be deleted yet.

    Members are counted only once no workload has a sidecar: a pod that starts meanwhile would found the group anew.
    """
    if observed.adopted:
        message = "waiting until the workload is released, to delete the group"
    elif observed.members is None:
        message = f"{_unreachable(observed)}, so the group is not deleted yet; to keep it, set deletionPolicy to RetainOffsets"
    elif observed.members > 0:
        message = f"waiting for {observed.members} members to leave, to delete the group"
    else:
        return None
    return Remark(ConditionType.READY, Reason.WAITING_FOR_MEMBERS, message)


def _unreachable(observed: Observed) -> str:
    if (observed.resource.get("status") or {}).get("coordination") == KAFKA_COORDINATION:
        return "the operator has no access to groups on Kafka"
    return "the group's coordinator does not answer"


def _group_id(observed: Observed, identity: Identity) -> str:
    pinned: str = (observed.resource.get("status") or {}).get("groupId", "")
    return pinned or claim_of(observed.resource).group_id


def _decision(observed: Observed, *actions: Action, remark: Remark | None = None) -> Decision:
    return pinned_decision(observed.resource, actions, remarks=() if remark is None else (remark,))
