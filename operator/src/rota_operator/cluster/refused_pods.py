"""
Finds out why pods of a StatefulSet cannot be created: its controller says it in Events only.

A Deployment has the condition ReplicaFailure instead, see `status.inputs`. Only asked for a StatefulSet with fewer pods than it
is to have; the newest Event about the creation of a pod counts, so that a refusal that has been overcome is not repeated.
"""

from typing import Any

from rota_operator.cluster.api import Api
from rota_operator.cluster.kinds import EVENT, STATEFUL_SET
from rota_operator.reconcile.observed import Object
from rota_operator.reconcile.target import replicas_of

FAILED, CREATED = "FailedCreate", "SuccessfulCreate"


def lacks_pods(target: Object | None) -> bool:
    """Return whether a workload is a StatefulSet with fewer pods than it is to have."""
    if target is None or target["kind"] != STATEFUL_SET.kind:
        return False
    pods: int = (target.get("status") or {}).get("replicas") or 0
    return pods < replicas_of(target)


async def refused_pods(api: Api, target: Object | None) -> str:
    """Return why the newest attempt to create a pod has failed, as the controller says it; empty: it has not. Raises ApiError."""
    if target is None or not lacks_pods(target):
        return ""
    metadata = target["metadata"]
    fields = f"involvedObject.uid={metadata['uid']}"
    attempts = [
        each
        async for each in api.list(EVENT, metadata["namespace"], fields=fields)
        if each.get("reason") in (FAILED, CREATED)
    ]
    newest = max(attempts, key=_order, default=None)
    if newest is None or newest["reason"] == CREATED:
        return ""
    return str(newest.get("message", ""))


def _order(event: Object) -> tuple[str, bool]:
    """Return the time of an Event, in seconds; of two in one second the failure is the newer one: pods are still missing."""
    at: Any = event.get("lastTimestamp") or event.get("eventTime") or ""
    return str(at)[: len("2026-09-21T09:00:00")], event["reason"] == FAILED
