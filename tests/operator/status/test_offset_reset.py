"""The condition OffsetReset tells what has become of the reset in the spec; while members are suspended for it, nothing is stuck."""

from typing import Any

import pytest

from rota_operator.resets.machine import ACTIVE_PHASES, SUSPENDED_PHASES, Phase
from rota_operator.spec.conditions import DOCUMENTED, ConditionType
from rota_operator.spec.status import ConsumerGroupStatus, OffsetReset, ResetIdentity
from rota_operator.status.status import due
from tests.operator.status.groups import condition, progress, status

Json = Any
SPEC: Json = {"offsets": {"reset": {"requestId": "replay-1", "dryRun": False, "to": {"earliest": True}}}}
ACTED = (ResetIdentity(request_id="replay-1", dry_run=False),)


def former(phase: Phase | None, **fields: Json) -> ConsumerGroupStatus:
    record = None
    if phase is not None:
        base: Json = {"request_id": "replay-1", "dry_run": False, "phase": phase.value, "partitions": 4}
        record = OffsetReset(**{**base, "skipped_records": 0, "repeated_records": 7, **fields})
    return ConsumerGroupStatus(observed_generation=1, offset_reset=record)


def reset_condition(spec: Json, before: ConsumerGroupStatus) -> tuple[str, str, str]:
    found = condition(status(spec, former=before), "OffsetReset")
    assert (ConditionType.OFFSET_RESET, found.status, found.reason) in {each[:3] for each in DOCUMENTED}
    return found.status, found.reason, found.message


@pytest.mark.parametrize("phase", [None, *Phase], ids=str)
def test_every_phase_has_its_reason(phase: Phase | None) -> None:
    held, reason, _ = reset_condition(SPEC, former(phase))
    assert (held == "True") is (phase in ACTIVE_PHASES)
    assert (reason == "ResetInProgress") is (phase in ACTIVE_PHASES)
    without, reason, _ = reset_condition({}, former(phase))
    assert reason == ("ResetInProgress" if phase in ACTIVE_PHASES else "NotRequested")
    assert without == held


def test_the_message_has_the_numbers_and_the_config_maps() -> None:
    planned = former(Phase.PLANNED, dry_run=True, plan_config_map="orders-reset-replay-1")
    dry = {"offsets": {"reset": {"requestId": "replay-1", "to": {"earliest": True}}}}
    assert reset_condition(dry, planned) == (
        "False",
        "DryRunCompleted",
        "4 partitions, 0 records skipped, 7 repeated: see ConfigMap orders-reset-replay-1; set dryRun to false to execute the plan",
    )
    done = former(Phase.COMPLETED, undo_config_map="orders-reset-replay-1-undo", executed=ACTED)
    assert "orders-reset-replay-1-undo has the plan that undoes" in reset_condition(SPEC, done)[2]
    wrong = former(Phase.REJECTED, message="spec.offsets.reset.to.datetime is in the future")
    assert reset_condition(SPEC, wrong)[1:] == (
        "ResetRejected",
        "spec.offsets.reset.to.datetime is in the future",
    )


def test_an_old_request_id_is_named() -> None:
    newer = former(Phase.COMPLETED, request_id="replay-2", executed=ACTED)
    _, reason, message = reset_condition(SPEC, newer)
    assert reason == "AlreadyExecuted"
    assert message == "a reset with requestId replay-1 was executed before; set a new requestId"


def test_a_reset_that_is_there_from_the_beginning_is_recorded_with_the_first_status() -> None:
    found = status(SPEC, former=ConsumerGroupStatus())
    assert found.offset_reset is not None
    assert (found.offset_reset.phase, found.offset_reset.executed) == ("Recorded", ACTED)
    assert condition(found, "OffsetReset").reason == "ResetWaiting"
    assert condition(status(SPEC, former=found), "OffsetReset").reason == "ResetNotExecuted"
    # One that is set later is executed.
    assert status(SPEC, former=former(None)).offset_reset is None
    assert status(former=ConsumerGroupStatus()).offset_reset is None


def test_a_record_stays_as_it_is_and_a_new_one_is_written_at_once() -> None:
    held = former(Phase.COMMITTING)
    assert status(SPEC, former=held).offset_reset == held.offset_reset
    assert due(former(Phase.PLANNED), held, 5_000, 5_001) == 5_001


@pytest.mark.parametrize("phase", Phase)
def test_nothing_is_stuck_while_members_are_suspended_for_a_reset(phase: Phase) -> None:
    found = status(SPEC, former=former(phase), progress=progress(10_000.0))
    is_suspended = phase in SUSPENDED_PHASES
    assert (condition(found, "Ready").reason == "ResetInProgress") is is_suspended
    assert (condition(found, "Stuck").status == "True") is not is_suspended
