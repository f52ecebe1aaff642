"""
Performs the tasks of a reset that has begun: suspend, set offsets, read them back, resume. Called by the shells.

Orders go to sidecars after the settings say the same, so that a sidecar that starts meanwhile, or a change of another setting, does not
undo them. A sidecar sets offsets under its own generation; what it has not confirmed is ordered again, from the owner of then. Nothing
here is remembered that another life of the operator would need: it performs the task of the record anew.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from rota_operator.engines.port import Unavailable
from rota_operator.offset_resets.group import Members, ResetGroup
from rota_operator.offset_resets.sources import look_up, topics_in, with_times
from rota_operator.overview.assignment import Partition
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

# Longer than the sidecar's own limit of 20 s, whose error says more.
ANSWER_S = 25.0
# Longer than the sidecar's own limit of 60 s, whose error says more.
ORDER_S = 65.0
# Of resuming, in one life of the operator.
RESUME_S = 60.0
NOT_SUSPENDED_YET = "the settings of the sidecars do not suspend them yet"
NOT_DESCRIBED = "the group's coordinator does not describe it"
NO_OWNER = "the partition has no owner"


class Execution:
    """
    Progress of one reset in this life of the operator; `perform` raises what the group raises for failed requests.

    Invariant: an offset that is not in `_left` is committed, or the task that commits has not begun.
    """

    def __init__(self, request_id: str, within_s: float) -> None:
        self.request_id = request_id
        self._within_s = within_s
        # The loop's clock, in seconds.
        self._since_s = loop_time()
        self._resuming_since_s: float | None = None
        # None: not read yet.
        self._plan: Plan | None = None
        self._offsets: Mapping[Partition, int] = {}
        # Offsets that are not confirmed; None: not begun.
        self._left: dict[Partition, int] | None = None
        # Why the last attempt did not succeed.
        self._problem = ""

    async def perform(
        self, group: ResetGroup, record: OffsetReset, task: Task, *, is_suspended: bool
    ) -> Event | None:
        """Perform the task of a record; None: it is not done yet. `is_suspended`: the spec suspends the group by itself."""
        if task is Task.RESUME:
            return await self._resume(group, is_suspended=is_suspended)
        try:
            plan = await self._load(group, record)
            match task:
                case Task.SUSPEND:
                    event = await self._suspend(group, record, plan)
                case Task.COMMIT:
                    event = await self._commit(group, record)
                case _:
                    event = await self._read_back(group)
        except ResetRefused as refusal:
            return Aborted(f"{refusal}; {self._left_as(record)}")
        except Unavailable as error:
            self._problem, event = str(error), None
        if event is None and self._is_late:
            return Aborted(f"not done within {self._within_s:g} s ({self._problem}); {self._left_as(record)}")
        return event

    @property
    def _is_late(self) -> bool:
        return loop_time() - self._since_s > self._within_s

    async def _load(self, group: ResetGroup, record: OffsetReset) -> Plan:
        """Read the plan, once in a life of the operator. Raises ResetRefused."""
        if self._plan is None:
            plan = await group.read_plan(record.plan_config_map, record.plan_hash)
            async with group.source() as source:
                lookup = await look_up(source, group.group_id, topics_in(plan))
            self._offsets = await asyncio.to_thread(current_offsets, plan, lookup)
            self._plan = plan
        return self._plan

    async def _suspend(self, group: ResetGroup, record: OffsetReset, plan: Plan) -> Event | None:
        """Suspend all members, by the settings first; then write the plan that undoes the reset."""
        if await group.settings_suspend() is not True:
            self._problem = NOT_SUSPENDED_YET
            return None
        if not await self._order_suspension(group):
            return None
        async with group.source() as source:
            committed = await source.committed(self._offsets.keys())
            undo = await with_times(source, await asyncio.to_thread(undo_of, plan, committed))
        name = plan_name(group.name, record.request_id, UNDO)
        await group.write_plan(name, undo)
        return Suspended(name)

    async def _order_suspension(self, group: ResetGroup) -> bool:
        """Order all members that read to stop; returns whether all are known to have stopped."""
        members = group.members()
        if members is None:
            self._problem = NOT_DESCRIBED
            return False
        errors = await order_each(group, members.reading, pb.SidecarOrder(suspend=pb.Suspend()))
        waits_for = members.reading | members.unknown
        if waits_for:
            names = ", ".join(sorted(waits_for)[:3])
            self._problem = next(iter(errors), f"not suspended yet: {names}")
        return not waits_for

    async def _commit(self, group: ResetGroup, record: OffsetReset) -> Event | None:
        """Let each owner set the offsets of its partitions; without any member, set them at the coordinator."""
        if self._left is None:
            self._left = dict(self._offsets)
        if self._left:
            await self._order_suspension(group)
            members = group.members()
            if members is not None and not members.exist:
                async with group.source() as source:
                    await source.commit(self._left)
                self._left.clear()
            elif members is not None:
                await self._order_offsets(group, record, members)
        return None if self._left else Committed()

    async def _order_offsets(self, group: ResetGroup, record: OffsetReset, members: Members) -> None:
        """Order the owners to set what is left; confirmed offsets are left no more."""
        left = self._left
        assert left is not None, "the commit has begun"
        owned = {name: each for name, each in group.owned().items() if name in members.suspended}
        orders = reset_orders(left, owned)
        if not orders:
            self._problem = self._problem or NO_OWNER
        answers = await asyncio.gather(
            *(send_offsets(group, record, name, order) for name, order in orders.items())
        )
        for done, problem in answers:
            for partition in done:
                left.pop(partition, None)
            self._problem = problem or self._problem

    async def _read_back(self, group: ResetGroup) -> Event:
        """Compare the committed offsets with the plan; what differs is left."""
        async with group.source() as source:
            committed = await source.committed(self._offsets.keys())
        differing = {each: at for each, at in self._offsets.items() if committed.get(each) != at}
        if not differing:
            return Verified()
        self._left = differing
        self._problem = f"other offsets are committed than those of the plan: {shown(differing)}"
        # Within the limit of the whole execution: another client may commit again and again.
        if self._is_late:
            raise ResetRefused(self._problem)
        return Differing()

    async def _resume(self, group: ResetGroup, *, is_suspended: bool) -> Event | None:
        """Let the members read again, by the settings first; those of old settings by orders."""
        if self._resuming_since_s is None:
            self._resuming_since_s = loop_time()
        is_late = loop_time() - self._resuming_since_s > RESUME_S
        if is_suspended:
            return Resumed()
        if await group.settings_suspend() and not is_late:
            return None
        members = group.members()
        suspended = frozenset() if members is None else members.suspended
        await order_each(group, suspended, pb.SidecarOrder(resume=pb.Resume()))
        is_done = members is not None and not suspended
        return Resumed() if is_done or is_late else None

    def _left_as(self, record: OffsetReset) -> str:
        """Return what is changed and what is not, for the message of an execution that is given up."""
        if not record.undo_config_map:
            return "no offset was changed"
        undo = f"ConfigMap {record.undo_config_map} has the plan that undoes the reset"
        left = self._left
        if left is None:
            return f"some offsets may be set; {undo}"
        return f"{len(left)} offsets are not set: {shown(left)}; check their owners and reset again; {undo}"


def execution_of(record: OffsetReset, known: Execution | None, within_s: float) -> Execution:
    """
    Return the execution of a record: the known one, unless it is one of another reset.

    `within_s` limits suspending and setting all offsets, in one life of the operator or the runner.
    """
    is_same = known is not None and known.request_id == record.request_id
    return known if known is not None and is_same else Execution(record.request_id, within_s)


def problem_of_members(members: Members | None, unwatched: str) -> str:
    """Return why a reset cannot begin: members that no sidecar of the ConsumerGroup speaks for; empty: there are none."""
    if members is None:
        return unwatched
    if members.unknown:
        names = ", ".join(sorted(members.unknown)[:3])
        return (
            f"{len(members.unknown)} members do not report as sidecars of this ConsumerGroup, such as {names}; wait for them "
            "to connect, or stop them"
        )
    return ""


async def order_each(group: ResetGroup, members: Collection[str], order: pb.SidecarOrder) -> Sequence[str]:
    """Send an order to members; returns the errors."""
    errors = await asyncio.gather(*(group.order(name, order, ANSWER_S) for name in sorted(members)))
    return [each for each in errors if each]


async def send_offsets(
    group: ResetGroup, record: OffsetReset, member: str, order: ResetOrder
) -> tuple[Sequence[Partition], str]:
    """Send the offsets of one owner; returns the partitions that are set, and the first error."""
    done: list[Partition] = []
    for part in order.parts():
        if error := await group.order(member, part.message(record.request_id), ORDER_S):
            return done, f"{member}: {error}"
        done += part.offsets
    return done, ""


def loop_time() -> float:
    """Return the time of the running loop's clock, in seconds."""
    return asyncio.get_running_loop().time()
