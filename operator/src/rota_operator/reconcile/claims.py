"""
Decides between ConsumerGroups that want the same workload, or the same group id on the same cluster: the oldest wins.

A claim counts as long as its ConsumerGroup exists, also while it is being deleted: its members may still be in the group.
"""

from collections.abc import Iterable

from rota_operator.reconcile.decision import Refusal
from rota_operator.reconcile.observed import Claim
from rota_operator.spec.conditions import Reason


def lost_target(own: Claim, others: Iterable[Claim]) -> Refusal | None:
    """Return a refusal if an older ConsumerGroup has the workload."""
    if own.target is None:
        return None
    winner = _oldest(
        other for other in others if other.namespace == own.namespace and other.target == own.target
    )
    if winner is None or _age(own) < _age(winner):
        return None
    return Refusal(
        Reason.TARGET_CLAIMED,
        f"spec.scaleTargetRef: {own.target.kind} {own.target.name} belongs to the older ConsumerGroup "
        f"{winner.namespace}/{winner.name}; name another workload, or delete that ConsumerGroup",
    )


def lost_group_id(own: Claim, others: Iterable[Claim]) -> Refusal | None:
    """Return a refusal if an older ConsumerGroup has the group id on the same cluster."""
    winner = _oldest(
        other
        for other in others
        if other.group_id == own.group_id and set(other.coordinator) & set(own.coordinator)
    )
    if winner is None or _age(own) < _age(winner):
        return None
    return Refusal(
        Reason.GROUP_ID_CLAIMED,
        f"spec.groupId: group {own.group_id} belongs to the older ConsumerGroup {winner.namespace}/{winner.name}; "
        "create this one with another groupId, or delete that one",
    )


def _oldest(claims: Iterable[Claim]) -> Claim | None:
    return min(claims, key=_age, default=None)


def _age(claim: Claim) -> tuple[str, str]:
    return claim.created, claim.uid
