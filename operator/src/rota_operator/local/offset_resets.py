"""
Executes the offset resets of the runner's groups, by the core `resets.machine`: those of the manifests, and those of the page.

    record.json, manifest ── task_of ──> planning, execution ── step ──> record.json ──> settings file, history

One task is performed at a time for each group, and its outcome is in the record before the next one begins: a runner that is killed is
followed by one that performs the task of the record again. While the record says so, the settings file suspends sidecars that start.
"""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from typing_extensions import override

from rota_operator.engines.port import Unavailable
from rota_operator.fleet.principal import Principal
from rota_operator.local.paths import CannotStart, write_atomically
from rota_operator.local.reset_files import ResetFiles, UnreadableRecord
from rota_operator.manifests.resources import ConsumerGroup
from rota_operator.offset_resets.execution import (
    Execution,
    execution_of,
    order_each,
    problem_of_members,
)
from rota_operator.offset_resets.group import Members, ResetGroup, members_of, owned_in
from rota_operator.offset_resets.planning import begin, plan_for, refuse_store, summary_of
from rota_operator.offset_resets.sources import OffsetSource, topics_in
from rota_operator.overview.view import OwnedPartitions
from rota_operator.plan.settings import settings_json
from rota_operator.resets.documents import plan_name
from rota_operator.resets.machine import (
    ACTIVE_PHASES,
    Event,
    FirstSeen,
    Phase,
    Postponed,
    Prepared,
    Refused,
    Task,
    phase_of,
    step,
    suspends,
    task_of,
)
from rota_operator.resets.orders import Offsets
from rota_operator.resets.plan import Plan, PlannedOffset, ResetRefused
from rota_operator.resets.targets import ToPlan
from rota_operator.spec.offsets import Reset
from rota_operator.spec.status import OffsetReset
from rota_operator.spec.validation import parse_model
from rota_proto.fleet.v1 import fleet_pb2 as pb

# Of suspending the members and setting all offsets.
EXECUTION_S = 60.0
# Between two attempts of a reset that cannot begin, or whose files cannot be written.
RETRY_S = 1.0
NOT_DESCRIBED = "the group's coordinator does not describe it yet"


class GroupState(Protocol):
    """Part of `dashboard_state.DashboardState`."""

    def reports(self, group_id: str) -> Mapping[str, pb.SidecarReport]:
        """Return the live reports of a group's sidecars, by sidecar name."""
        ...

    def client_ids(self, group_id: str) -> frozenset[str] | None:
        """Return the client ids of a group's members; None: unknown."""
        ...

    async def wait_for_change(self) -> None:
        """Wait for the next change, for at most a second."""
        ...


class ResetPorts(NamedTuple):
    """Everything that resets need of the runner."""

    state: GroupState
    # Sidecars that have a stream now.
    connected: Callable[[], Sequence[Principal]]
    # Sends an order to a replica and waits for the answer, so many seconds; returns the error, or an empty string.
    send_order: Callable[[str, pb.SidecarOrder, float], Awaitable[str]]
    # Opens a source of the group's offsets; raises Unavailable.
    source: Callable[[ConsumerGroup], AbstractAsyncContextManager[OffsetSource]]
    wall_ms: Callable[[], int]
    # A reset of the group has come so far.
    record_event: Callable[[str, str], None]


class LocalGroup(ResetGroup):
    """A group of the runner. Reads and writes of files raise OSError too."""

    def __init__(self, ports: ResetPorts, files: ResetFiles, group: ConsumerGroup, settings: Path) -> None:
        self._ports = ports
        self._files = files
        self._group = group
        self._settings = settings

    @property
    @override
    def name(self) -> str:
        return self._group.name.name

    @property
    @override
    def group_id(self) -> str:
        return self._group.group_id

    @override
    def members(self) -> Members | None:
        client_ids = self._ports.state.client_ids(self.group_id)
        if client_ids is None:
            return None
        connected = frozenset(
            each.sidecar.pod for each in self._ports.connected() if each.group_id == self.group_id
        )
        return members_of(self._ports.state.reports(self.group_id), connected, client_ids)

    @override
    def owned(self) -> Mapping[str, OwnedPartitions]:
        return owned_in(self._ports.state.reports(self.group_id))

    @override
    async def order(self, member: str, order: pb.SidecarOrder, within_s: float) -> str:
        return await self._ports.send_order(member, order, within_s)

    @override
    async def settings_suspend(self) -> bool | None:
        return bool(json.loads(self._settings.read_bytes()).get("suspend", False))

    @override
    def source(self) -> AbstractAsyncContextManager[OffsetSource]:
        return self._ports.source(self._group)

    @override
    async def read_plan(self, name: str, plan_hash: str = "") -> Plan:
        # In a thread, as below: a plan of 200,000 partitions takes seconds, in which the runner serves its sidecars.
        return await asyncio.to_thread(self._files.read_plan, name, plan_hash)

    @override
    async def write_plan(self, name: str, plan: Plan) -> None:
        await asyncio.to_thread(self._files.write_plan, name, plan)


class GroupResets:
    """
    The resets of one group; thread-confined to one event loop.

    Invariant: one task is under way at a time, and `record` is what the file has.
    """

    def __init__(self, ports: ResetPorts, group: ConsumerGroup, files: ResetFiles, settings: Path) -> None:
        """Read the record. Raises UnreadableRecord, OSError."""
        self._ports = ports
        self._group = group
        self._files = files
        self._settings = settings
        self._local = LocalGroup(ports, files, group, settings)
        self.record = files.read_record()
        self._is_new = not files.exist
        # A rejected reset is tried again by the next runner, whose manifest may be another one.
        self._generation = ports.wall_ms()
        self._execution: Execution | None = None
        self._one_at_a_time = asyncio.Lock()
        # Set when there may be a task; replaced at each change of the record.
        self._changed = asyncio.Event()

    def begin_run(self) -> None:
        """Write the settings file, and note that the group was seen. Raises OSError."""
        self._write_settings()
        if self._is_new and self._group.spec.offsets.reset is not None:
            self._apply(FirstSeen(self._group.spec.offsets.reset))
        elif self._is_new:
            self._files.write_record(None)

    async def run(self) -> None:
        """Perform tasks until cancelled."""
        while True:
            changed = self._changed
            if self._task is Task.NOTHING and self.record is None:
                await changed.wait()
                continue
            if self._task is Task.NOTHING:
                await self._resume_late_members()
                await self._ports.state.wait_for_change()
                continue
            async with self._one_at_a_time:
                again_s = await self._perform_task()
            if again_s:
                await asyncio.sleep(again_s)
            elif self._changed is changed:
                await self._ports.state.wait_for_change()

    async def reset(self, offsets: Offsets) -> str:
        """Set these offsets; returns the error, or an empty string once they are set and the members read again."""
        if self._is_active() or self._one_at_a_time.locked():
            return f"a reset of group {self._local.group_id} is in progress; retry when it has finished"
        async with self._one_at_a_time:
            try:
                self._apply(await self._prepare(offsets))
            except (ResetRefused, Unavailable) as error:
                return str(error)
            except OSError as error:
                return f"{self._files.folder} cannot be written ({error.strerror}); no offset was changed"
        while self._is_active():
            await self._changed.wait()
        assert self.record is not None, "a reset has a record"
        return "" if phase_of(self.record) is Phase.COMPLETED else self.record.message

    def _is_active(self) -> bool:
        return phase_of(self.record) in ACTIVE_PHASES

    @property
    def _task(self) -> Task:
        return task_of(self.record, self._group.spec.offsets.reset, self._generation)

    async def _prepare(self, offsets: Offsets) -> Event:
        """Write the plan of these offsets. Raises ResetRefused, Unavailable, OSError."""
        if problem := problem_of_members(self._local.members(), NOT_DESCRIBED):
            raise ResetRefused(problem)
        rows = tuple(PlannedOffset(each, None, offset) for each, offset in sorted(offsets.items()))
        requested = Plan(self._local.group_id, rows, skipped=0, repeated=0)
        async with self._local.source() as source:
            plan = await plan_for(self._local, source, ToPlan(requested), topics_in(requested))
        request_id = f"page-{secrets.token_hex(4)}"
        name = plan_name(self._local.name, request_id)
        await self._local.write_plan(name, plan)
        given = {"requestId": request_id, "dryRun": False, "to": {"fromConfigMap": name}}
        return Prepared(parse_model(Reset, given, ("reset",)), summary_of(name, plan))

    async def _perform_task(self) -> float:
        """Perform the task of now, and write its outcome; returns after how many seconds to try again, 0 for the next change."""
        try:
            event = await self._outcome()
            if event is not None:
                self._apply(event)
        except Unavailable as error:
            self._say(f"an offset reset waits: {error}")
            return RETRY_S
        except OSError as error:
            self._say(f"an offset reset waits: {self._files.folder} cannot be used ({error.strerror})")
            return RETRY_S
        return RETRY_S if isinstance(event, Postponed) else 0.0

    async def _resume_late_members(self) -> None:
        """Resume members that started by the settings of a reset, and have connected after its end."""
        members = self._local.members()
        if members is not None and not self._group.spec.suspend:
            await order_each(self._local, members.suspended, pb.SidecarOrder(resume=pb.Resume()))

    async def _outcome(self) -> Event | None:
        """Perform the task of now; None: it is not done yet. Raises Unavailable, OSError."""
        reset, task = self._group.spec.offsets.reset, self._task
        if task in (Task.PLAN, Task.PREPARE) and reset is not None:
            try:
                refuse_store(self._group.spec)
                problem = "" if reset.dry_run else problem_of_members(self._local.members(), NOT_DESCRIBED)
                if problem:
                    return Postponed(reset, problem)
                return await begin(self._local, self.record, reset, self._ports.wall_ms())
            except ResetRefused as refusal:
                return Refused(reset, str(refusal), self._generation)
            except Unavailable as error:
                return Postponed(reset, str(error))
        if self.record is None or task is Task.NOTHING:
            return None
        self._execution = execution_of(self.record, self._execution, EXECUTION_S)
        return await self._execution.perform(
            self._local, self.record, task, is_suspended=self._group.spec.suspend
        )

    def _apply(self, event: Event) -> None:
        """Write the record after an event, and then the settings file, which may suspend by it. Raises OSError."""
        after = step(self.record, event)
        if after == self.record:
            return
        self._files.write_record(after)
        self.record = after
        self._write_settings()
        if after is not None and (said := describe(after, self._files)):
            self._say(f"reset {after.request_id}: {said}")
        self._changed.set()
        self._changed = asyncio.Event()

    def _write_settings(self) -> None:
        """Write the settings that sidecars read when they start."""
        spec = self._group.spec
        if suspends(self.record):
            spec = spec.model_copy(update={"suspend": True})
        self._settings.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._settings, settings_json(spec).decode())

    def _say(self, message: str) -> None:
        self._ports.record_event(self._local.group_id, message)


def describe(record: OffsetReset, files: ResetFiles) -> str:
    """Return what users want to know of a phase; empty: nothing."""
    moved = f"{record.partitions} partitions, {record.skipped_records} records skipped, {record.repeated_records} repeated"
    match phase_of(record):
        case Phase.PLANNED:
            file = files.plan_file(record.plan_config_map)
            return f"{moved}: see {file}; set dryRun to false to execute the plan"
        case Phase.SUSPENDING:
            return f"suspending the members to set {record.partitions} offsets"
        case Phase.COMPLETED:
            return (
                f"done, {moved}; {files.plan_file(record.undo_config_map)} has the plan that undoes it: set a new requestId and "
                f"to.fromConfigMap to {record.undo_config_map}"
            )
        case Phase.COMMITTING | Phase.VERIFYING | Phase.RESUMING:
            return ""
        case _:
            return record.message


class OffsetResets:
    """The resets of all groups of a runner, by group id."""

    def __init__(
        self,
        groups: Sequence[ConsumerGroup],
        ports: ResetPorts,
        folder: Path,
        settings: Callable[[ConsumerGroup], Path],
        timestamp: Callable[[int], str],
    ) -> None:
        """Read the records below `folder`. Raises CannotStart."""
        self._groups: dict[str, GroupResets] = {}
        for group in groups:
            files = ResetFiles(folder / ".".join(group.name), group.group_id, group.name.namespace, timestamp)
            try:
                self._groups[group.group_id] = GroupResets(ports, group, files, settings(group))
            except UnreadableRecord as error:
                raise CannotStart(str(error)) from None
            except OSError as error:
                raise CannotStart(
                    f"cannot read {files.folder} ({error.strerror}); check its permissions"
                ) from None

    def begin_run(self) -> None:
        """Write the settings files of all groups, before the first sidecar starts. Raises OSError."""
        for each in self._groups.values():
            each.begin_run()

    async def run(self) -> None:
        """Perform the resets of all groups until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for each in self._groups.values():
                tasks.create_task(each.run())

    async def reset(self, group_id: str, offsets: Offsets) -> str:
        """Set these offsets; returns the error, or an empty string once they are set and the members read again."""
        if (group := self._groups.get(group_id)) is None:
            return f"group {group_id} is not run here; reset it after stopping its members"
        return await group.reset(offsets)
