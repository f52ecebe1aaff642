"""
Executes the resets in `spec.offsets.reset`: performs the tasks that `resets.machine` decides on, beside the reconciles.

Each step reads the ConsumerGroup, performs the task of its record in `status.offsetReset`, and writes what has become of it, in the
version that was read. So another life of the operator goes on where this one has ended. Suspension is part of the settings: the
reconcile that follows the write brings them to the ConfigMap and to all sidecars, and `reset_execution` sends orders after that.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rota_operator.cluster.api import Api
from rota_operator.cluster.errors import ApiError, Conflict
from rota_operator.cluster.event_recorder import NORMAL, WARNING, Fact
from rota_operator.cluster.kinds import CONSUMER_GROUP
from rota_operator.cluster.perform import of_version
from rota_operator.cluster.queues import Key
from rota_operator.cluster.reset_execution import ResetExecution
from rota_operator.cluster.status_writer import difference
from rota_operator.engines.port import Unavailable
from rota_operator.offset_resets.planning import begin, refuse_store
from rota_operator.reconcile.observed import Object
from rota_operator.resets.machine import (
    ACTIVE_PHASES,
    Event,
    Phase,
    Postponed,
    Refused,
    Task,
    phase_of,
    step,
    task_of,
)
from rota_operator.resets.plan import ResetRefused
from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.offsets import Reset
from rota_operator.spec.status import OffsetReset
from rota_operator.spec.validation import InvalidSpec, parse_model, spec_of
from rota_operator.status.offset_reset import outcome_of
from rota_operator.status.status import model_json

ROUND_S = 0.5
# Between two attempts of a reset that cannot begin, and after a request that has failed.
WAIT_S = 5.0
RETRY_S = 2.0
# Of a write of the record, while the status is written by others too.
ATTEMPTS_MAX = 8
NOT_ACCEPTED = "the ConsumerGroup is not accepted: see its condition Ready"
EVENTS = {
    Phase.WAITING: (NORMAL, "OffsetResetWaiting"),
    Phase.REJECTED: (WARNING, "OffsetResetRejected"),
    Phase.PLANNED: (NORMAL, "OffsetResetPlanned"),
    Phase.SUSPENDING: (NORMAL, "OffsetResetStarted"),
    Phase.COMPLETED: (NORMAL, "OffsetResetCompleted"),
    Phase.FAILED: (WARNING, "OffsetResetFailed"),
}
# Reasons of the Events about the end of an execution.
RESET_ENDS = frozenset(EVENTS[phase][1] for phase in (Phase.COMPLETED, Phase.FAILED))


class ResetPorts(NamedTuple):
    """Everything that resets need of the leader."""

    api: Api
    wall_ms: Callable[[], int]
    # The record of a ConsumerGroup is written: its settings may change by that.
    written: Callable[[Key, Object], None]
    record_event: Callable[[Object, Fact], None]
    warn: Callable[[str], None]
    on_exception: Callable[[Exception], None]


class Requested(NamedTuple):
    """A ConsumerGroup as it was read for one step."""

    key: Key
    resource: Object
    # None: it is invalid.
    spec: ConsumerGroupSpec | None
    record: OffsetReset | None

    @property
    def generation(self) -> int:
        """The metadata.generation of the spec."""
        generation: int = self.resource["metadata"].get("generation", 0)
        return generation

    @property
    def reset(self) -> Reset | None:
        """The reset in the spec."""
        return None if self.spec is None else self.spec.offsets.reset

    @property
    def task(self) -> Task:
        """The task of now."""
        return task_of(self.record, self.reset, self.generation)


class OffsetResets:
    """
    Resets of all ConsumerGroups; thread-confined to one event loop.

    Invariant: at most one step of a ConsumerGroup is under way.
    """

    def __init__(self, ports: ResetPorts, execution: ResetExecution) -> None:
        self._ports = ports
        self._execution = execution
        # ConsumerGroups that may have something to do, and not before which time of the loop's clock.
        self._due_s: dict[Key, float] = {}
        self._under_way: set[Key] = set()
        # ConsumerGroups whose reset is executed, or is about to be, by the last record that was read or written.
        self._active: set[Key] = set()
        # Whether the last decision was no refusal.
        self._accepted: dict[Key, bool] = {}
        # Last warning by ConsumerGroup, which is logged once.
        self._warnings: dict[Key, str] = {}

    def decided(self, key: Key, resource: Object, *, is_accepted: bool) -> None:
        """Look at a ConsumerGroup that was reconciled; one that has nothing to reset costs no request."""
        self._accepted[key] = is_accepted
        if has_reset(resource):
            self._due_s.setdefault(key, 0.0)

    def forget(self, key: Key) -> None:
        """Drop a ConsumerGroup that is gone."""
        for held in (self._due_s, self._accepted, self._warnings):
            held.pop(key, None)
        self._active.discard(key)
        self._execution.forget(key)

    def is_active(self, key: Key) -> bool:
        """Return whether a reset is executed, which suspends and resumes the members itself."""
        return key in self._active

    async def run(self) -> None:
        """Perform steps until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                now_s = asyncio.get_running_loop().time()
                for key in [key for key, due_s in self._due_s.items() if due_s <= now_s]:
                    if key not in self._under_way:
                        self._under_way.add(key)
                        tasks.create_task(self._step_safely(key))
                await asyncio.sleep(ROUND_S)

    async def _step_safely(self, key: Key) -> None:
        try:
            await self.step(key)
            self._warnings.pop(key, None)
        except (ApiError, Unavailable) as error:
            self._wait(key, RETRY_S)
            if self._warnings.get(key) != str(error):
                self._warnings[key] = str(error)
                self._ports.warn(f"the offset reset of {key.namespace}/{key.name} waits: {error}")
        # One ConsumerGroup must not stop the others, whatever is wrong with it.
        except Exception as error:  # noqa: BLE001
            self._wait(key, WAIT_S)
            self._ports.on_exception(error)
        finally:
            self._under_way.discard(key)

    def _wait(self, key: Key, seconds: float) -> None:
        if key in self._due_s:
            self._due_s[key] = asyncio.get_running_loop().time() + seconds

    async def step(self, key: Key) -> None:
        """Perform the task of one ConsumerGroup, and write its outcome. Raises ApiError, Unavailable."""
        requested = await self._read(key)
        if requested is None or requested.task is Task.NOTHING:
            self._due_s.pop(key, None)
            self._active.discard(key)
            self._execution.forget(key)
            return
        self._track(key, requested.record)
        event = await self._perform(requested)
        if event is None:
            return
        if isinstance(event, Postponed):
            self._wait(key, WAIT_S)
        changed = step(requested.record, event)
        if changed is not None and changed != requested.record:
            await self._write(requested, changed)

    def _track(self, key: Key, record: OffsetReset | None) -> None:
        if phase_of(record) in ACTIVE_PHASES:
            self._active.add(key)
        else:
            self._active.discard(key)

    async def _read(self, key: Key) -> Requested | None:
        """Read a ConsumerGroup; None if there is nothing to reset: it is gone, or has no status yet."""
        resource = await self._ports.api.find(CONSUMER_GROUP, *key)
        if resource is None or "deletionTimestamp" in resource["metadata"]:
            return None
        status = resource.get("status") or {}
        if not status.get("observedGeneration"):
            # With its first status a reset is recorded that must not be executed.
            return None
        return Requested(key, resource, spec_of(resource), record_in(resource))

    async def _perform(self, requested: Requested) -> Event | None:
        """Perform the task; None: it is not done yet."""
        reset, spec = requested.reset, requested.spec
        match requested.task:
            case Task.PLAN | Task.PREPARE if reset is not None and spec is not None:
                try:
                    return await self._begin(requested, spec, reset)
                except ResetRefused as refusal:
                    return Refused(reset, str(refusal), requested.generation)
                except Unavailable as error:
                    return Postponed(reset, str(error))
            case _:
                assert requested.record is not None, "an execution has a record"
                is_suspended = spec is not None and spec.suspend
                return await self._execution.perform(
                    requested.key,
                    requested.resource,
                    requested.record,
                    requested.task,
                    is_suspended=is_suspended,
                )

    async def _begin(self, requested: Requested, spec: ConsumerGroupSpec, reset: Reset) -> Event:
        """Make or read the plan, and write it. Raises ResetRefused, Unavailable, ApiError."""
        key = requested.key
        if not self._accepted.get(key, False):
            return Postponed(reset, NOT_ACCEPTED)
        refuse_store(spec)
        group = self._execution.group(key, requested.resource)
        if not reset.dry_run and (problem := group.problem_of_members()):
            return Postponed(reset, problem)
        return await begin(group, requested.record, reset, self._ports.wall_ms())

    async def _write(self, requested: Requested, changed: OffsetReset) -> None:
        """Write the record, unless it or the spec has changed since it was read."""
        resource = requested.resource
        for _ in range(ATTEMPTS_MAX):
            held = (resource.get("status") or {}).get("offsetReset") or {}
            changes = {"status": {"offsetReset": difference(held, model_json(changed))}}
            version = resource["metadata"]["resourceVersion"]
            if phase_of(changed) in ACTIVE_PHASES:
                # Before the record is there, by which the settings change.
                self._active.add(requested.key)
            try:
                written = await self._ports.api.patch(
                    CONSUMER_GROUP, *requested.key, of_version(changes, version), "status"
                )
            except Conflict:
                again = await self._read(requested.key)
                if again is None or again[2:] != requested[2:]:
                    return
                resource = again.resource
                continue
            self._track(requested.key, changed)
            self._ports.written(requested.key, written)
            record_phase(self._ports.record_event, written, requested.record, changed)
            return


def has_reset(resource: Object) -> bool:
    """Return whether a ConsumerGroup has a reset in its spec, or one that is executed."""
    offsets = (resource.get("spec") or {}).get("offsets")
    record = (resource.get("status") or {}).get("offsetReset") or {}
    return bool(isinstance(offsets, Mapping) and offsets.get("reset")) or record.get("phase") in ACTIVE_PHASES


def record_in(resource: Object) -> OffsetReset | None:
    """Return the record of a ConsumerGroup's reset. Raises Unavailable for one that this version cannot read."""
    found = (resource.get("status") or {}).get("offsetReset")
    if not found:
        return None
    try:
        return parse_model(OffsetReset, found, ("status", "offsetReset"))
    except InvalidSpec as error:
        raise Unavailable(f"{error}; no offset is reset until that is corrected") from None


def record_phase(
    record_event: Callable[[Object, Fact], None],
    resource: Object,
    before: OffsetReset | None,
    after: OffsetReset,
) -> None:
    """Write an Event about a phase that users wait for."""
    phase = phase_of(after)
    if phase is None or phase not in EVENTS:
        return
    kind, reason = EVENTS[phase]
    said = outcome_of(after) or f"suspending the members to set {after.partitions} offsets"
    record_event(resource, Fact(kind, reason, f"reset {after.request_id}: {said}"))
