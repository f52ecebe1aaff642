"""
Performs the tasks of a reset that has begun: suspend, set offsets, read them back, resume. Called by `offset_resets`.

Orders go to sidecars after the settings say the same, so that a pod that starts meanwhile, or a change of another setting, does not
undo them. A sidecar sets offsets under its own generation; what it has not confirmed is ordered again, from the owner of then. Nothing
here is remembered that another life of the operator would need: it performs the task of the record anew.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rota_operator.cluster.api import Api
from rota_operator.cluster.group_watch import ResetAccess
from rota_operator.cluster.kinds import CONFIG_MAP
from rota_operator.cluster.queues import Key
from rota_operator.cluster.reset_lookups import (
    ANSWER_S,
    OpenSource,
    look_up,
    no_member,
    topics_in,
    with_times,
)
from rota_operator.cluster.reset_plans import ResetPlans
from rota_operator.cluster.settings_orders import Fleet, key_of
from rota_operator.engines.port import Unavailable
from rota_operator.fleet.principal import SidecarRef
from rota_operator.overview.assignment import Partition
from rota_operator.overview.reported_group import MEMBER_STATES
from rota_operator.overview.view import OwnedPartitions
from rota_operator.reconcile.observed import Object
from rota_operator.reconcile.settings import SETTINGS_FILE
from rota_operator.resets.documents import UNDO, plan_name
from rota_operator.resets.machine import (
    Aborted,
    Committed,
    Differing,
    Event,
    Resumed,
    Suspended,
    Task,
    Verified,
)
from rota_operator.resets.orders import ResetOrder, reset_orders
from rota_operator.resets.plan import Plan, ResetRefused, shown, undo_of
from rota_operator.resets.targets import current_offsets
from rota_operator.spec.status import OffsetReset
from rota_proto.fleet.v1 import fleet_pb2 as pb

# Longer than the sidecar's own limit of 60 s, whose error says more.
ORDER_S = 65.0
# Of suspending and setting all offsets, and of resuming, in one life of the operator.
EXECUTION_S = 600.0
RESUME_S = 60.0
NOT_SUSPENDED_YET = "the settings of the sidecars do not suspend them yet"
NOT_WATCHED = "the group's coordinator does not describe it"
NO_OWNER = "the partition has no owner"


@dataclass(slots=True)
class Execution:
    """Progress of one reset in this life of the operator."""

    request_id: str
    # The loop's clock, in seconds.
    since_s: float
    resuming_since_s: float | None = None
    # None: not read yet.
    plan: Plan | None = None
    offsets: Mapping[Partition, int] = field(default_factory=dict)
    # Offsets that are not confirmed; None: not begun.
    left: dict[Partition, int] | None = None
    # Why the last attempt did not succeed.
    problem: str = ""


class Members(NamedTuple):
    """The sidecars of a group, by the names of their pods."""

    # Connected, with a live report, which says that it is suspended.
    suspended: frozenset[str]
    # Connected, and reading.
    reading: frozenset[str]
    # Members, or connected, without a live report of a connected sidecar: their state is not known.
    unknown: frozenset[str]

    @property
    def exist(self) -> bool:
        """True if the group has, or may have, members."""
        return bool(self.suspended or self.reading or self.unknown)


class ExecutionPorts(NamedTuple):
    """Everything that an execution needs of the leader."""

    api: Api
    fleet: Fleet
    access: Callable[[Key], ResetAccess | None]
    source: OpenSource


class ResetExecution:
    """Executions by ConsumerGroup; thread-confined to one event loop. `perform` raises ApiError and Unavailable."""

    def __init__(self, ports: ExecutionPorts, plans: ResetPlans) -> None:
        self._ports = ports
        self._plans = plans
        self._executions: dict[Key, Execution] = {}

    def forget(self, key: Key) -> None:
        """Drop what is known of a ConsumerGroup's execution."""
        self._executions.pop(key, None)

    def problem_of_members(self, key: Key) -> str:
        """Return why a reset cannot begin: members that no sidecar of the ConsumerGroup speaks for; empty: there are none."""
        members = self._members(key)
        if members is None:
            access = self._ports.access(key)
            return NOT_WATCHED if access is None or access.coordinator is not None else no_member(access)
        if members.unknown:
            names = ", ".join(sorted(members.unknown)[:3])
            return (
                f"{len(members.unknown)} members do not report as sidecars of this ConsumerGroup, such as {names}; wait for them "
                "to connect, or stop them"
            )
        return ""

    async def perform(
        self, key: Key, resource: Object, record: OffsetReset, task: Task, *, is_suspended: bool
    ) -> Event | None:
        """Perform the task of a record; None: it is not done yet. `is_suspended`: the spec suspends the group by itself."""
        execution = self._execution(key, record)
        if task is Task.RESUME:
            return await self._resume(key, execution, is_suspended=is_suspended)
        try:
            await self._load(key, resource, record, execution)
            match task:
                case Task.SUSPEND:
                    event = await self._suspend(key, resource, record, execution)
                case Task.COMMIT:
                    event = await self._commit(key, record, execution)
                case _:
                    event = await self._read_back(key, execution)
        except ResetRefused as refusal:
            return Aborted(f"{refusal}; {self._left_as(record, execution)}")
        except Unavailable as error:
            execution.problem, event = str(error), None
        if event is None and loop_time() - execution.since_s > EXECUTION_S:
            return Aborted(
                f"not done within {EXECUTION_S:g} s ({execution.problem}); {self._left_as(record, execution)}"
            )
        return event

    def _execution(self, key: Key, record: OffsetReset) -> Execution:
        known = self._executions.get(key)
        if known is None or known.request_id != record.request_id:
            known = self._executions[key] = Execution(record.request_id, loop_time())
        return known

    async def _load(self, key: Key, resource: Object, record: OffsetReset, execution: Execution) -> None:
        """Read the plan, once in a life of the operator. Raises ResetRefused."""
        if execution.plan is not None:
            return
        group_id: str = resource["status"]["groupId"]
        plan = await self._plans.read(key, record.plan_config_map, group_id, record.plan_hash)
        async with self._ports.source(key) as source:
            lookup = await look_up(source, group_id, topics_in(plan))
        execution.offsets = current_offsets(plan, lookup)
        execution.plan = plan

    async def _suspend(
        self, key: Key, resource: Object, record: OffsetReset, execution: Execution
    ) -> Event | None:
        """Suspend all members, by the settings first; then write the plan that undoes the reset."""
        assert execution.plan is not None, "the plan is loaded"
        if await self._settings_suspend(key) is not True:
            execution.problem = NOT_SUSPENDED_YET
            return None
        if not await self._order_suspension(key, execution):
            return None
        async with self._ports.source(key) as source:
            committed = await source.committed(execution.offsets.keys())
            undo = await with_times(source, undo_of(execution.plan, committed))
        name = plan_name(key.name, record.request_id, UNDO)
        await self._plans.write(key, resource, name, undo)
        return Suspended(name)

    async def _settings_suspend(self, key: Key) -> bool | None:
        """Return whether the settings that pods read when they start suspend the group; None: there are none."""
        found = await self._ports.api.find(CONFIG_MAP, key.namespace, f"rota-{key.name}")
        settings = None if found is None else (found.get("data") or {}).get(SETTINGS_FILE)
        return None if settings is None else json.loads(settings).get("suspend", False)

    async def _order_suspension(self, key: Key, execution: Execution) -> bool:
        """Order all members that read to stop; returns whether all are known to have stopped."""
        members = self._members(key)
        if members is None:
            execution.problem = NOT_WATCHED
            return False
        errors = await self._order_each(key, members.reading, pb.SidecarOrder(suspend=pb.Suspend()))
        waits_for = members.reading | members.unknown
        if waits_for:
            names = ", ".join(sorted(waits_for)[:3])
            execution.problem = next(iter(errors), f"not suspended yet: {names}")
        return not waits_for

    async def _commit(self, key: Key, record: OffsetReset, execution: Execution) -> Event | None:
        """Let each owner set the offsets of its partitions; without any member, set them at the coordinator."""
        if execution.left is None:
            execution.left = dict(execution.offsets)
        if execution.left:
            await self._order_suspension(key, execution)
            members = self._members(key)
            if members is not None and not members.exist:
                async with self._ports.source(key) as source:
                    await source.commit(execution.left)
                execution.left.clear()
            elif members is not None:
                await self._order_offsets(key, record, execution, members)
        return None if execution.left else Committed()

    async def _order_offsets(
        self, key: Key, record: OffsetReset, execution: Execution, members: Members
    ) -> None:
        """Order the owners to set what is left; confirmed offsets are left no more."""
        left = execution.left
        assert left is not None, "the commit has begun"
        access = self._ports.access(key)
        owned = {} if access is None else owned_in(access)
        orders = reset_orders(left, {pod: each for pod, each in owned.items() if pod in members.suspended})
        if not orders:
            execution.problem = execution.problem or NO_OWNER
        answers = await asyncio.gather(
            *(self._send(key, record, pod, order) for pod, order in orders.items())
        )
        for done, problem in answers:
            for partition in done:
                left.pop(partition, None)
            execution.problem = problem or execution.problem

    async def _send(
        self, key: Key, record: OffsetReset, pod: str, order: ResetOrder
    ) -> tuple[Sequence[Partition], str]:
        """Send the offsets of one owner; returns the partitions that are set, and the first error."""
        done: list[Partition] = []
        for part in order.parts():
            message = part.message(record.request_id)
            answer = await self._ports.fleet.order(SidecarRef(key.namespace, pod), message, ORDER_S)
            if answer.error:
                return done, f"{pod}: {answer.error}"
            done += part.offsets
        return done, ""

    async def _read_back(self, key: Key, execution: Execution) -> Event:
        """Compare the committed offsets with the plan; what differs is left."""
        async with self._ports.source(key) as source:
            committed = await source.committed(execution.offsets.keys())
        differing = {
            each: offset for each, offset in execution.offsets.items() if committed.get(each) != offset
        }
        if not differing:
            return Verified()
        execution.left = differing
        execution.problem = f"other offsets are committed than those of the plan: {shown(differing)}"
        # Within the limit of the whole execution: another client may commit again and again.
        if loop_time() - execution.since_s > EXECUTION_S:
            raise ResetRefused(execution.problem)
        return Differing()

    async def _resume(self, key: Key, execution: Execution, *, is_suspended: bool) -> Event | None:
        """Let the members read again, by the settings first; those of old settings by orders."""
        if execution.resuming_since_s is None:
            execution.resuming_since_s = loop_time()
        is_late = loop_time() - execution.resuming_since_s > RESUME_S
        if is_suspended:
            return Resumed()
        if await self._settings_suspend(key) and not is_late:
            return None
        members = self._members(key)
        suspended = frozenset() if members is None else members.suspended
        await self._order_each(key, suspended, pb.SidecarOrder(resume=pb.Resume()))
        is_done = members is not None and not suspended
        return Resumed() if is_done or is_late else None

    async def _order_each(self, key: Key, pods: frozenset[str], order: pb.SidecarOrder) -> Sequence[str]:
        """Send an order to pods; returns the errors."""
        answers = await asyncio.gather(
            *(
                self._ports.fleet.order(SidecarRef(key.namespace, pod), order, ANSWER_S)
                for pod in sorted(pods)
            )
        )
        return [each.error for each in answers if each.error]

    def _members(self, key: Key) -> Members | None:
        """Return the members as they are known now; None: the group is not watched, or not described."""
        access = self._ports.access(key)
        if access is None:
            return None
        connected = {each.sidecar.pod for each in self._ports.fleet.connected if key_of(each) == key}
        if access.description is None and (access.coordinator is not None or not connected):
            # Kafka describes a group to its members alone, unless the operator has credentials.
            return None
        described = () if access.description is None else access.description.members
        reports = {pod: each for pod, each in access.reports.items() if pod in connected}
        suspended = frozenset(pod for pod, each in reports.items() if each.member.suspended)
        return Members(
            suspended,
            frozenset(reports) - suspended,
            frozenset(
                {*(each.client_id for each in described), *connected, *access.reports} - reports.keys()
            ),
        )

    def _left_as(self, record: OffsetReset, execution: Execution) -> str:
        """Return what is changed and what is not, for the message of an execution that is given up."""
        left = execution.left
        if not record.undo_config_map:
            return "no offset was changed"
        undo = f"ConfigMap {record.undo_config_map} has the plan that undoes the reset"
        if left is None:
            return f"some offsets may be set; {undo}"
        return f"{len(left)} offsets are not set: {shown(left)}; check their owners and reset again; {undo}"


def owned_in(access: ResetAccess) -> Mapping[str, OwnedPartitions]:
    """Return the partitions and the generation of each sidecar, by its live report."""
    return {
        pod: OwnedPartitions(
            report.member.generation_id,
            frozenset(Partition(each.topic, each.partition) for each in report.partitions),
        )
        for pod, report in access.reports.items()
        if report.member.state in MEMBER_STATES
    }


def loop_time() -> float:
    """Return the time of the running loop's clock, in seconds."""
    return asyncio.get_running_loop().time()
