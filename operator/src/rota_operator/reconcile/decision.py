"""The output of `plan`: actions, and what the ConsumerGroup's status says about them."""

from dataclasses import dataclass

from rota_operator.reconcile.actions import Action
from rota_operator.reconcile.observed import Object


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason for which the group cannot run as specified: condition Ready is False with this reason and message."""

    # CamelCase, of the documented list.
    reason: str
    # Names the field's path where a field is wrong, and what to do.
    message: str


@dataclass(frozen=True, slots=True)
class Remark:
    """A restriction under which the group runs, shown in the condition of this type without making it False."""

    condition: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """
    The actions for one ConsumerGroup, and their part of its status.

    Invariant: with a refusal no action changes a workload, except releasing one that is claimed no longer.
    """

    actions: tuple[Action, ...]
    refusal: Refusal | None = None
    remarks: tuple[Remark, ...] = ()
    # Of the status; pinned values stay what they were when they were first decided.
    group_id: str = ""
    coordination: str = ""
    sidecar_image: str = ""
    selector: str = ""
    desired_replicas: int | None = None
    # Rota's autoscaler measures the group; whether it changes anything is said by spec.autoscaling.dryRun.
    is_autoscaled: bool = False


def pinned_decision(
    resource: Object,
    actions: tuple[Action, ...] = (),
    refusal: Refusal | None = None,
    remarks: tuple[Remark, ...] = (),
) -> Decision:
    """Return a decision for a ConsumerGroup that is not run now; what its status has pinned stays so."""
    status = resource.get("status") or {}
    return Decision(
        actions=actions,
        refusal=refusal,
        remarks=remarks,
        group_id=status.get("groupId", ""),
        coordination=status.get("coordination", ""),
        sidecar_image=status.get("sidecarImage", ""),
        selector=status.get("selector", ""),
    )
