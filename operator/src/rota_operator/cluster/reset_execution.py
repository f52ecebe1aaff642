"""
Executes resets in a cluster: each ConsumerGroup as a `ResetGroup`, whose orders go to pods and whose plans are ConfigMaps.

Called by `offset_resets`; what is performed is in `rota_operator.offset_resets.execution`.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from typing_extensions import override

from rota_operator.cluster.api import Api
from rota_operator.cluster.group_watch import ResetAccess
from rota_operator.cluster.kinds import CONFIG_MAP
from rota_operator.cluster.queues import Key
from rota_operator.cluster.reset_lookups import OpenSource, no_member
from rota_operator.cluster.reset_plans import ResetPlans
from rota_operator.cluster.settings_orders import Fleet, key_of
from rota_operator.fleet.principal import SidecarRef
from rota_operator.offset_resets.execution import NOT_DESCRIBED, Execution, execution_of, problem_of_members
from rota_operator.offset_resets.group import Members, ResetGroup, members_of, owned_in
from rota_operator.offset_resets.sources import OffsetSource
from rota_operator.overview.description import users_of
from rota_operator.overview.view import OwnedPartitions
from rota_operator.reconcile.observed import Object
from rota_operator.reconcile.settings import SETTINGS_FILE
from rota_operator.resets.machine import Event, Task
from rota_operator.resets.plan import Plan
from rota_operator.spec.status import OffsetReset
from rota_proto.fleet.v1 import fleet_pb2 as pb

# Of suspending the members and setting all offsets, in one life of the operator.
EXECUTION_S = 600.0


class ExecutionPorts(NamedTuple):
    """Everything that an execution needs of the leader."""

    api: Api
    fleet: Fleet
    access: Callable[[Key], ResetAccess | None]
    source: OpenSource


class ClusterGroup(ResetGroup):
    """A ConsumerGroup as it was read for one step. Requests raise ApiError too."""

    def __init__(self, ports: ExecutionPorts, plans: ResetPlans, key: Key, resource: Object) -> None:
        self._ports = ports
        self._plans = plans
        self._key = key
        self._resource = resource

    @property
    @override
    def name(self) -> str:
        return self._key.name

    @property
    @override
    def group_id(self) -> str:
        """The group id that is pinned."""
        group_id: str = self._resource["status"].get("groupId", "")
        return group_id

    @override
    def members(self) -> Members | None:
        access = self._ports.access(self._key)
        if access is None:
            return None
        connected = frozenset(
            each.sidecar.pod for each in self._ports.fleet.connected if key_of(each) == self._key
        )
        if access.description is None and (access.coordinator is not None or not connected):
            # Kafka describes a group to its members alone, unless the operator has credentials.
            return None
        described = () if access.description is None else access.description.members
        users = users_of(access.reports)
        client_ids = frozenset(users.get(each.member_id, each.client_id) for each in described)
        return members_of(access.reports, connected, client_ids)

    @override
    def owned(self) -> Mapping[str, OwnedPartitions]:
        access = self._ports.access(self._key)
        return {} if access is None else owned_in(access.reports)

    @override
    async def order(self, member: str, order: pb.SidecarOrder, within_s: float) -> str:
        sidecar = SidecarRef(self._key.namespace, member)
        return str((await self._ports.fleet.order(sidecar, order, within_s)).error)

    @override
    async def settings_suspend(self) -> bool | None:
        found = await self._ports.api.find(CONFIG_MAP, self._key.namespace, f"rota-{self._key.name}")
        settings = None if found is None else (found.get("data") or {}).get(SETTINGS_FILE)
        return None if settings is None else json.loads(settings).get("suspend", False)

    @override
    def source(self) -> AbstractAsyncContextManager[OffsetSource]:
        return self._ports.source(self._key)

    @override
    async def read_plan(self, name: str, plan_hash: str = "") -> Plan:
        return await self._plans.read(self._key, name, self.group_id, plan_hash)

    @override
    async def write_plan(self, name: str, plan: Plan) -> None:
        await self._plans.write(self._key, self._resource, name, plan)

    def problem_of_members(self) -> str:
        """Return why a reset cannot begin now; empty: it can."""
        access = self._ports.access(self._key)
        is_on_kafka = access is not None and access.coordinator is None
        unwatched = no_member(access) if access is not None and is_on_kafka else NOT_DESCRIBED
        return problem_of_members(self.members(), unwatched)


class ResetExecution:
    """Executions by ConsumerGroup; thread-confined to one event loop. `perform` raises ApiError and Unavailable."""

    def __init__(self, ports: ExecutionPorts, plans: ResetPlans) -> None:
        self._ports = ports
        self._plans = plans
        self._executions: dict[Key, Execution] = {}

    def group(self, key: Key, resource: Object) -> ClusterGroup:
        """Return the group of a ConsumerGroup."""
        return ClusterGroup(self._ports, self._plans, key, resource)

    def forget(self, key: Key) -> None:
        """Drop what is known of a ConsumerGroup's execution."""
        self._executions.pop(key, None)

    async def perform(
        self, key: Key, resource: Object, record: OffsetReset, task: Task, *, is_suspended: bool
    ) -> Event | None:
        """Perform the task of a record; None: it is not done yet. `is_suspended`: the spec suspends the group by itself."""
        execution = execution_of(record, self._executions.get(key), EXECUTION_S)
        self._executions[key] = execution
        return await execution.perform(self.group(key, resource), record, task, is_suspended=is_suspended)
