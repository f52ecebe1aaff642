"""Every phase meets every event: what fits goes on, what is outdated changes nothing, and an identity acts once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_operator.resets import machine as m
from rota_operator.resets.machine import Phase, Summary, Task, step, task_of
from rota_operator.spec.offsets import Reset
from rota_operator.spec.status import OffsetReset, ResetIdentity
from rota_operator.spec.validation import parse_model


def reset(request_id: str = "replay-1", *, dry_run: bool = False) -> Reset:
    return parse_model(
        Reset,
        {"requestId": request_id, "dryRun": dry_run, "to": {"earliest": True}},
        ("spec", "offsets", "reset"),
    )


OTHER = reset("replay-2")
SUMMARY = Summary("orders-reset-replay-2", "hash", 3, 4, 5)
EVENTS: dict[str, m.Event] = {
    "first seen": m.FirstSeen(OTHER),
    "postponed": m.Postponed(OTHER, "waits"),
    "refused": m.Refused(OTHER, "wrong", 7),
    "planned": m.Planned(OTHER, SUMMARY),
    "prepared": m.Prepared(OTHER, SUMMARY),
    "suspended": m.Suspended("undo"),
    "committed": m.Committed(),
    "verified": m.Verified(),
    "differing": m.Differing(),
    "aborted": m.Aborted("too late"),
    "resumed": m.Resumed(),
}
# Events about a request that stands in the spec; they begin a record in every phase in which no reset is executed.
BEGINNING = {
    "first seen": Phase.RECORDED,
    "postponed": Phase.WAITING,
    "refused": Phase.REJECTED,
    "planned": Phase.PLANNED,
    "prepared": Phase.SUSPENDING,
}
GOES_ON = {
    (Phase.SUSPENDING, "suspended"): Phase.COMMITTING,
    (Phase.SUSPENDING, "aborted"): Phase.RESUMING,
    (Phase.COMMITTING, "committed"): Phase.VERIFYING,
    (Phase.COMMITTING, "aborted"): Phase.RESUMING,
    (Phase.VERIFYING, "verified"): Phase.RESUMING,
    (Phase.VERIFYING, "differing"): Phase.COMMITTING,
    (Phase.VERIFYING, "aborted"): Phase.RESUMING,
    (Phase.RESUMING, "resumed"): Phase.COMPLETED,
}
TASKS = {
    Phase.SUSPENDING: Task.SUSPEND,
    Phase.COMMITTING: Task.COMMIT,
    Phase.VERIFYING: Task.READ_BACK,
    Phase.RESUMING: Task.RESUME,
}


def record(phase: Phase) -> OffsetReset:
    executed = (
        ()
        if phase in (Phase.WAITING, Phase.REJECTED)
        else (ResetIdentity(request_id="replay-1", dry_run=False),)
    )
    return OffsetReset(request_id="replay-1", dry_run=False, phase=phase, executed=executed)


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("phase", [None, *Phase], ids=str)
def test_every_phase_meets_every_event(phase: Phase | None, event: str) -> None:
    before = None if phase is None else record(phase)
    after = step(before, EVENTS[event])
    if (phase, event) in GOES_ON and phase is not None:
        assert m.phase_of(after) is GOES_ON[phase, event]
        assert after is not None
        assert (after.request_id, after.executed) == ("replay-1", record(phase).executed)
    elif event in BEGINNING and phase not in m.ACTIVE_PHASES:
        assert m.phase_of(after) is BEGINNING[event]
        assert after is not None
        assert after.request_id == "replay-2"
        is_acting = event in ("first seen", "planned", "prepared")
        assert m.is_acted(after, m.identity_of(OTHER)) is is_acting
        # What acted before stays known.
        assert m.is_acted(after, m.identity_of(reset())) is bool(before and before.executed)
    else:
        assert after == before


@pytest.mark.parametrize("phase", [None, *Phase], ids=str)
def test_every_phase_has_its_task(phase: Phase | None) -> None:
    before = None if phase is None else record(phase)
    expected = TASKS.get(phase, Task.PREPARE) if phase is not None else Task.PREPARE
    assert task_of(before, OTHER, 1) is expected
    # An execution is finished, whatever the spec says by now.
    assert task_of(before, None, 1) is (TASKS.get(phase, Task.NOTHING) if phase is not None else Task.NOTHING)


@pytest.mark.parametrize("phase", Phase)
def test_members_are_suspended_exactly_from_the_first_order_to_the_last_comparison(phase: Phase) -> None:
    assert m.suspends(record(phase)) is (phase in (Phase.SUSPENDING, Phase.COMMITTING, Phase.VERIFYING))
    assert not m.suspends(None)


def test_an_execution_that_is_given_up_resumes_and_has_failed() -> None:
    given_up = step(record(Phase.COMMITTING), m.Aborted("2 offsets are not set"))
    assert not m.suspends(given_up)
    failed = step(given_up, m.Resumed())
    assert failed is not None
    assert (failed.phase, failed.message) == (Phase.FAILED, "2 offsets are not set")


def test_a_dry_run_and_its_execution_are_two_identities_and_the_execution_knows_the_plan() -> None:
    dry = reset(dry_run=True)
    planned = step(None, m.Planned(dry, Summary("orders-reset-replay-1", "abc", 3, 4, 5)))
    assert planned is not None
    assert task_of(planned, dry, 1) is Task.NOTHING
    assert task_of(planned, reset(), 1) is Task.PREPARE
    assert task_of(planned, reset("new", dry_run=True), 1) is Task.PLAN
    found = m.dry_run_of(planned, "replay-1")
    assert found is not None
    assert found.plan_hash == "abc"
    assert m.dry_run_of(planned, "replay-2") is None
    assert (planned.partitions, planned.skipped_records, planned.repeated_records) == (3, 4, 5)


def test_what_is_recorded_is_not_executed() -> None:
    recorded = step(None, m.FirstSeen(reset(dry_run=True)))
    assert task_of(recorded, reset(dry_run=True), 1) is Task.NOTHING
    assert m.dry_run_of(recorded, "replay-1") is None


def test_a_rejected_reset_is_tried_again_when_the_spec_has_changed() -> None:
    rejected = step(None, m.Refused(reset(), "wrong", 7))
    assert task_of(rejected, reset(), 7) is Task.NOTHING
    assert task_of(rejected, reset(), 8) is Task.PREPARE


def test_a_phase_of_a_newer_version_is_no_reason_to_act_twice() -> None:
    newer = record(Phase.COMPLETED).model_copy(update={"phase": "Polished"})
    assert task_of(newer, reset(), 1) is Task.NOTHING


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=120))
def test_an_identity_acts_once_and_the_last_50_are_known(wanted: list[tuple[int, bool]]) -> None:
    held: OffsetReset | None = None
    acted: list[tuple[int, bool]] = []
    for number, dry_run in wanted:
        asked = reset(f"replay-{number}", dry_run=dry_run)
        if task_of(held, asked, 1) is Task.NOTHING:
            assert (number, dry_run) in acted
            continue
        acted.append((number, dry_run))
        held = step(held, m.Planned(asked, SUMMARY) if dry_run else m.Prepared(asked, SUMMARY))
        for event in (m.Suspended("undo"), m.Committed(), m.Verified(), m.Resumed()):
            held = step(held, event)
    assert len(acted) == len(set(acted))


def test_the_history_is_bounded() -> None:
    held: OffsetReset | None = None
    for number in range(60):
        held = step(held, m.Planned(reset(f"replay-{number}", dry_run=True), SUMMARY))
    assert held is not None
    assert [each.request_id for each in held.executed] == [f"replay-{number}" for number in range(10, 60)]
