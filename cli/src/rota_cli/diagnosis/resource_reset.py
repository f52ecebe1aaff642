"""
Decide what a version of a ConsumerGroup says about an offset reset: whether another one is due, how far this one is. Pure.

The operator keeps the record of a reset in `status.offsetReset`. `kubectl rota groups reset` follows it through the versions of the
ConsumerGroup that a watch yields.
"""

from typing import NamedTuple

from rota_cli.clusters.kubernetes.resource import ConsumerGroup
from rota_cli.errors import Failure, NotFound

WAITING, REJECTED, RECORDED, PLANNED, COMPLETED, FAILED = (
    "Waiting",
    "Rejected",
    "Recorded",
    "Planned",
    "Completed",
    "Failed",
)
# Phases of an execution under way, with what happens meanwhile.
ACTIVE = {
    "Suspending": "the members stop reading",
    "Committing": "the owners set the offsets of their partitions",
    "Verifying": "the committed offsets are compared with the plan",
    "Resuming": "the members read on",
}


class ResetIdentity(NamedTuple):
    """A reset acts once for each of these."""

    request_id: str
    dry_run: bool

    @property
    def name(self) -> str:
        """Return how messages call it."""
        return f"{'dry run' if self.dry_run else 'reset'} {self.request_id}"


class ResetProgress(NamedTuple):
    """State of a reset that has not failed; `is_done`: it is planned or completed."""

    message: str
    is_done: bool = False


def requested_reset(group: ConsumerGroup) -> ResetIdentity | None:
    """Return the reset in the spec."""
    reset = (group.spec.get("offsets") or {}).get("reset")
    return ResetIdentity(str(reset["requestId"]), bool(reset.get("dryRun", True))) if reset else None


def recorded_reset(group: ConsumerGroup) -> ResetIdentity | None:
    """Return the reset that the status is about."""
    record = group.offset_reset
    if not record:
        return None
    return ResetIdentity(str(record.get("requestId", "")), bool(record.get("dryRun", True)))


def is_executed(group: ConsumerGroup, identity: ResetIdentity) -> bool:
    """Return whether a reset has acted, or was recorded as one that must not act."""
    executed = group.offset_reset.get("executed") or ()
    return any((each.get("requestId"), bool(each.get("dryRun", True))) == identity for each in executed)


def refuse_while_another_is_due(group: ConsumerGroup) -> None:
    """Refuse a reset while another one is executed or has not begun, because it would replace that one. Raises Failure."""
    record, requested = recorded_reset(group), requested_reset(group)
    phase = group.offset_reset.get("phase")
    follow = f"follow it with `kubectl rota groups watch {group.name} -n {group.namespace}`"
    if record is not None and phase in ACTIVE:
        raise Failure(f"{record.name} of {group.full_name} is {phase}: {follow}, and run the command again")
    if requested is None or is_executed(group, requested) or (requested == record and phase == REJECTED):
        return
    why = f" ({group.offset_reset.get('message')})" if requested == record and phase == WAITING else ""
    raise Failure(
        f"{requested.name} of {group.full_name} has not begun{why}: {follow}, or remove spec.offsets.reset, and run the command again"
    )


def planned_reset(group: ConsumerGroup, request_id: str) -> None:
    """Refuse to execute a plan that is not the one of the dry run in spec and status. Raises Failure."""
    planned = ResetIdentity(request_id, dry_run=True)
    if is_executed(group, ResetIdentity(request_id, dry_run=False)):
        raise Failure(f"reset {request_id} of {group.full_name} was executed before: make a new dry run")
    if requested_reset(group) != planned or recorded_reset(group) != planned or not is_planned(group):
        raise Failure(
            f"{request_id} is not the last dry run of {group.full_name}: make a new one, or execute the plan in its ConfigMap with "
            "--from-config-map"
        )


def is_planned(group: ConsumerGroup) -> bool:
    """Return whether the status has the plan of a dry run."""
    return group.offset_reset.get("phase") == PLANNED


def progress_of(
    group: ConsumerGroup | None, uid: str, full_name: str, identity: ResetIdentity
) -> ResetProgress:
    """Return how far a requested reset is. Raises Failure if it has failed, or will not happen."""
    if group is None or group.uid != uid:
        raise NotFound(f"{full_name} was deleted before {identity.name} was done: its members have ended")
    record, phase = recorded_reset(group), str(group.offset_reset.get("phase", ""))
    if record == identity:
        return _progress_of_phase(group, identity, phase)
    if is_executed(group, identity):
        raise Failure(
            f"{identity.name} of {full_name} has acted, and another one has begun since: see its outcome in the Events, with "
            f"`kubectl rota groups explain {group.name} -n {group.namespace}`"
        )
    if requested_reset(group) != identity:
        raise Failure(
            f"spec.offsets.reset of {full_name} was replaced before {identity.name} began: nothing was changed by it; run the command "
            "again"
        )
    if record is not None and phase in ACTIVE:
        return ResetProgress(f"waiting for {record.name}, which is {phase}")
    return ResetProgress("waiting for the operator")


def _progress_of_phase(group: ConsumerGroup, identity: ResetIdentity, phase: str) -> ResetProgress:
    message = str(group.offset_reset.get("message") or "")
    if phase in (REJECTED, RECORDED, FAILED):
        raise Failure(f"{identity.name} of {group.full_name} is {phase}: {message}")
    if phase in (PLANNED, COMPLETED):
        return ResetProgress(phase, is_done=True)
    detail = message or ACTIVE.get(phase, "")
    return ResetProgress(f"{phase}: {detail}" if detail else phase)
