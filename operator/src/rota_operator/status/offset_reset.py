"""Describes the reset of a ConsumerGroup for its condition OffsetReset, by the record in its status."""

from rota_operator.resets.machine import ACTIVE_PHASES, Phase, identity_of, is_acted, phase_of
from rota_operator.spec.conditions import Reason
from rota_operator.spec.offsets import Reset
from rota_operator.spec.status import OffsetReset

REASONS = {
    Phase.WAITING: Reason.RESET_WAITING,
    Phase.REJECTED: Reason.RESET_REJECTED,
    Phase.RECORDED: Reason.RESET_NOT_EXECUTED,
    Phase.PLANNED: Reason.DRY_RUN_COMPLETED,
    Phase.COMPLETED: Reason.RESET_COMPLETED,
    Phase.FAILED: Reason.RESET_FAILED,
}
NOT_BEGUN = "the reset has not been looked at yet"


def reset_state(record: OffsetReset | None, requested: Reset | None) -> tuple[Reason, str]:
    """Return the reason and the message of the condition; `requested` is the reset in the spec."""
    phase = phase_of(record)
    if record is not None and phase in ACTIVE_PHASES:
        return Reason.RESET_IN_PROGRESS, f"{phase} for reset {record.request_id}"
    if requested is None:
        return Reason.NOT_REQUESTED, ""
    if record is not None and (record.request_id, record.dry_run) == identity_of(requested):
        # A phase of a newer version has acted.
        reason = Reason.ALREADY_EXECUTED if phase is None else REASONS[phase]
        return reason, outcome_of(record)
    if is_acted(record, identity_of(requested)):
        what = "a dry run" if requested.dry_run else "a reset"
        return (
            Reason.ALREADY_EXECUTED,
            f"{what} with requestId {requested.request_id} was executed before; set a new requestId",
        )
    return Reason.RESET_WAITING, NOT_BEGUN


def outcome_of(record: OffsetReset) -> str:
    """Return what a reset has done, or will do, in one sentence."""
    moved = f"{record.partitions} partitions, {record.skipped_records} records skipped, {record.repeated_records} repeated"
    match phase_of(record):
        case Phase.PLANNED:
            return f"{moved}: see ConfigMap {record.plan_config_map}; set dryRun to false to execute the plan"
        case Phase.COMPLETED:
            return f"{moved}; ConfigMap {record.undo_config_map} has the plan that undoes the reset (to.fromConfigMap)"
        case _:
            return record.message
