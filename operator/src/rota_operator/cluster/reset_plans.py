"""Reads and writes the ConfigMaps of reset plans. Called by `offset_resets`; the format is that of `resets.documents`."""

import asyncio
from collections.abc import Callable, Mapping

from rota_operator.cluster.api import Api
from rota_operator.cluster.errors import Conflict, Refused
from rota_operator.cluster.kinds import CONFIG_MAP
from rota_operator.cluster.perform import owned_by
from rota_operator.cluster.queues import Key
from rota_operator.reconcile.observed import Object
from rota_operator.resets.documents import documents_of, part_count, part_name, plan_in
from rota_operator.resets.plan import Plan, ResetRefused


class ResetPlans:
    """Plans in the ConfigMaps of ConsumerGroups' namespaces. Raises ApiError."""

    def __init__(self, api: Api, timestamp: Callable[[int], str]) -> None:
        self._api = api
        self._timestamp = timestamp

    async def write(self, key: Key, resource: Object, name: str, plan: Plan) -> None:
        """Write a plan; the ConfigMaps go with the ConsumerGroup. Raises ResetRefused if they belong to another owner."""
        # In a thread: up to 200,000 lines, meanwhile the leader renews its Lease.
        for document in await asyncio.to_thread(documents_of, plan, name, self._timestamp):
            fields = {**owned_by(resource), "data": dict(document.data)}
            try:
                await self._api.apply(CONFIG_MAP, key.namespace, document.name, fields)
            except (Conflict, Refused) as error:
                if isinstance(error, Conflict) and error.retry:
                    raise
                raise ResetRefused(
                    f"ConfigMap {document.name} cannot be written ({error}); remove it, or set another requestId"
                ) from None

    async def read(self, key: Key, name: str, group_id: str, plan_hash: str = "") -> Plan:
        """Read a plan; with `plan_hash`, the one of this hash. Raises ResetRefused."""
        first = await self._data(key, name)
        count = part_count(name, first)
        parts = [first]
        while len(parts) < count and parts[-1] is not None:
            parts.append(await self._data(key, part_name(name, len(parts) + 1)))
        parts += [None] * (count - len(parts))
        return await asyncio.to_thread(plan_in, name, parts, group_id, plan_hash)

    async def _data(self, key: Key, name: str) -> Mapping[str, str] | None:
        found = await self._api.find(CONFIG_MAP, key.namespace, name)
        return None if found is None else found.get("data") or {}
