"""
State machine of an offset reset: `task_of` returns the next task of a record, `step` the record after the task's outcome.

The record is `status.offsetReset`. The shell writes it before it performs the next task, so that after a crash the task of the written
phase is performed again; every task is idempotent until the next phase is written. A dry run goes from nothing to Planned; an execution
through Suspending, Committing, Verifying and Resuming to Completed or Failed. While it is between Suspending and Verifying, the
settings of the sidecars suspend the group (`suspends`), whatever else is changed in them meanwhile.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, NamedTuple, TypeAlias, assert_never

from rota_operator.spec.offsets import Reset
from rota_operator.spec.status import OffsetReset, ResetIdentity

# Identities that are remembered.
HISTORY_MAX = 50
MESSAGE_LENGTH_MAX = 1024


class Phase(StrEnum):
    """Values of `status.offsetReset.phase`."""

    # Nothing has happened yet.
    WAITING = "Waiting"
    REJECTED = "Rejected"
    # Present when the ConsumerGroup was seen for the first time, and therefore not executed.
    RECORDED = "Recorded"
    # A dry run is done.
    PLANNED = "Planned"
    SUSPENDING = "Suspending"
    COMMITTING = "Committing"
    VERIFYING = "Verifying"
    RESUMING = "Resuming"
    COMPLETED = "Completed"
    FAILED = "Failed"


PHASES = {each.value: each for each in Phase}
SUSPENDED_PHASES = frozenset({Phase.SUSPENDING, Phase.COMMITTING, Phase.VERIFYING})
ACTIVE_PHASES = SUSPENDED_PHASES | {Phase.RESUMING}


class Identity(NamedTuple):
    """Identity of a reset, which acts once for each."""

    request_id: str
    dry_run: bool


class Task(Enum):
    """Task of the shell."""

    NOTHING = "nothing"
    # Make the plan of a dry run, and write it.
    PLAN = "plan"
    # Read the plan of the dry run, or make one, and write it.
    PREPARE = "prepare"
    # Suspend all members, then write the plan that undoes the reset.
    SUSPEND = "suspend"
    COMMIT = "commit"
    READ_BACK = "read back"
    RESUME = "resume"


class Summary(NamedTuple):
    """Summary of a plan that was written."""

    config_map: str
    hash: str
    partitions: int
    skipped: int
    repeated: int


@dataclass(frozen=True, slots=True)
class FirstSeen:
    """Reset that was present when the ConsumerGroup was seen for the first time: created again from git, or restored."""

    reset: Reset


@dataclass(frozen=True, slots=True)
class Postponed:
    """Reset that cannot begin now; the message says what it waits for."""

    reset: Reset
    message: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Reset that cannot be executed as it is specified in this metadata.generation."""

    reset: Reset
    message: str
    generation: int


@dataclass(frozen=True, slots=True)
class Planned:
    """Outcome of PLAN: the plan of a dry run is written."""

    reset: Reset
    summary: Summary


@dataclass(frozen=True, slots=True)
class Prepared:
    """Outcome of PREPARE: the plan of an execution is written and checked."""

    reset: Reset
    summary: Summary


@dataclass(frozen=True, slots=True)
class Suspended:
    """Outcome of SUSPEND: all members are suspended, and the plan that undoes the reset is written."""

    undo_config_map: str


@dataclass(frozen=True, slots=True)
class Committed:
    """Outcome of COMMIT: all offsets of the plan are committed."""


@dataclass(frozen=True, slots=True)
class Verified:
    """Outcome of READ_BACK: the committed offsets equal the plan."""


@dataclass(frozen=True, slots=True)
class Differing:
    """Outcome of READ_BACK: committed offsets differ from the plan."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """Execution that cannot be finished; the message says why, and what is changed."""

    message: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """Outcome of RESUME: the members read again, unless the spec suspends them."""


Event: TypeAlias = (
    FirstSeen
    | Postponed
    | Refused
    | Planned
    | Prepared
    | Suspended
    | Committed
    | Verified
    | Differing
    | Aborted
    | Resumed
)


def identity_of(reset: Reset) -> Identity:
    """Return the identity of a reset."""
    return Identity(reset.request_id, reset.dry_run)


def phase_of(record: OffsetReset | None) -> Phase | None:
    """Return the phase of a record; None without one, or of a phase of a newer version."""
    return None if record is None else PHASES.get(record.phase)


def suspends(record: OffsetReset | None) -> bool:
    """Return whether the members are to read nothing for the sake of a reset."""
    return phase_of(record) in SUSPENDED_PHASES


def is_suspending(status: Mapping[str, Any]) -> bool:
    """Return `suspends` of a status in JSON, also of one that this version cannot read otherwise."""
    return (status.get("offsetReset") or {}).get("phase") in SUSPENDED_PHASES


def is_acted(record: OffsetReset | None, identity: Identity) -> bool:
    """Return whether a reset with this identity has acted before."""
    return record is not None and any((each.request_id, each.dry_run) == identity for each in record.executed)


def dry_run_of(record: OffsetReset | None, request_id: str) -> ResetIdentity | None:
    """Return the dry run of a requestId, with the hash of its plan; None: there was none, or it was only recorded."""
    for each in () if record is None else record.executed:
        if (each.request_id, each.dry_run) == (request_id, True) and each.plan_hash:
            return each
    return None


def task_of(record: OffsetReset | None, reset: Reset | None, generation: int) -> Task:
    """
    Return what to do now; an execution that has begun is finished first, whatever the spec says by now.

    `generation` is the metadata.generation of `reset`.
    """
    match phase_of(record):
        case Phase.SUSPENDING:
            return Task.SUSPEND
        case Phase.COMMITTING:
            return Task.COMMIT
        case Phase.VERIFYING:
            return Task.READ_BACK
        case Phase.RESUMING:
            return Task.RESUME
        case _:
            return _task_of_request(record, reset, generation)


def _task_of_request(record: OffsetReset | None, reset: Reset | None, generation: int) -> Task:
    if reset is None or is_acted(record, identity_of(reset)):
        return Task.NOTHING
    if record is not None and record.phase == Phase.REJECTED and record.observed_generation == generation:
        return Task.NOTHING
    return Task.PLAN if reset.dry_run else Task.PREPARE


def step(record: OffsetReset | None, event: Event) -> OffsetReset | None:
    """Return the record after an event; the same one if the event does not fit the phase, because it is outdated."""
    phase = phase_of(record)
    match event:
        case FirstSeen() | Postponed() | Refused() | Planned() | Prepared():
            return record if phase in ACTIVE_PHASES else _begun(record, event)
        case Suspended():
            fits, after = (
                phase is Phase.SUSPENDING,
                {"phase": Phase.COMMITTING, "undo_config_map": event.undo_config_map},
            )
        case Committed():
            fits, after = phase is Phase.COMMITTING, {"phase": Phase.VERIFYING}
        case Verified():
            fits, after = phase is Phase.VERIFYING, {"phase": Phase.RESUMING}
        case Differing():
            fits, after = phase is Phase.VERIFYING, {"phase": Phase.COMMITTING}
        case Aborted():
            fits, after = phase in SUSPENDED_PHASES, {"phase": Phase.RESUMING, "message": _cut(event.message)}
        case Resumed():
            failed = record is not None and bool(record.message)
            fits, after = phase is Phase.RESUMING, {"phase": Phase.FAILED if failed else Phase.COMPLETED}
        case _:
            assert_never(event)
    return _changed(record, after) if record is not None and fits else record


def _begun(
    record: OffsetReset | None, event: FirstSeen | Postponed | Refused | Planned | Prepared
) -> OffsetReset | None:
    """Return the record of a reset that is new, or has not acted yet."""
    identity = identity_of(event.reset)
    executed = () if record is None else record.executed
    if is_acted(record, identity):
        return record
    match event:
        case FirstSeen():
            text = "the reset was there when the ConsumerGroup was created, and is not executed; set a new requestId to execute it"
            return _record(identity, Phase.RECORDED, _with(executed, identity, ""), message=text)
        case Postponed():
            return _record(identity, Phase.WAITING, executed, message=_cut(event.message))
        case Refused():
            return _record(
                identity,
                Phase.REJECTED,
                executed,
                message=_cut(event.message),
                observed_generation=event.generation,
            )
        case Planned() | Prepared():
            phase = Phase.PLANNED if isinstance(event, Planned) else Phase.SUSPENDING
            summary = event.summary
            return _record(
                identity,
                phase,
                _with(executed, identity, summary.hash),
                plan_config_map=summary.config_map,
                plan_hash=summary.hash,
                partitions=summary.partitions,
                skipped_records=summary.skipped,
                repeated_records=summary.repeated,
            )


def _record(
    identity: Identity,
    phase: Phase,
    executed: tuple[ResetIdentity, ...],
    **fields: Any,  # noqa: ANN401  of several types
) -> OffsetReset:
    return OffsetReset(
        request_id=identity.request_id,
        dry_run=identity.dry_run,
        phase=phase.value,
        executed=executed,
        **fields,
    )


def _with(
    executed: tuple[ResetIdentity, ...], identity: Identity, plan_hash: str
) -> tuple[ResetIdentity, ...]:
    """Add an identity; the oldest ones are forgotten."""
    added = ResetIdentity(request_id=identity.request_id, dry_run=identity.dry_run, plan_hash=plan_hash)
    return (*executed, added)[-HISTORY_MAX:]


def _changed(record: OffsetReset, fields: Mapping[str, Any]) -> OffsetReset:
    return record.model_copy(update={name: str(each) for name, each in fields.items()})


def _cut(message: str) -> str:
    return message if len(message) <= MESSAGE_LENGTH_MAX else f"{message[: MESSAGE_LENGTH_MAX - 1]}…"
