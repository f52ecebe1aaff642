"""
Sends the queries that `overview.offset_lookups` decides on to sidecars, as Fleet orders, and returns their answers to the group watches.

Only groups with a connected sidecar are asked about; each has at most one query under way, so that a slow one holds up no other.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

from rota_operator.cluster.offset_queries import query_offsets
from rota_operator.cluster.queues import Key
from rota_operator.cluster.settings_orders import Fleet, key_of
from rota_operator.fleet.principal import SidecarRef
from rota_operator.overview.offset_lookups import OffsetQuery
from rota_proto.fleet.v1.fleet_pb2 import OrderAnswer

ROUND_S = 1.0
QUERIES_AT_A_TIME = 200


class Lookups(Protocol):
    """Part of `cluster.groups.GroupWatches`. Times are milliseconds of the clock that `OffsetOrders` has."""

    def next_query(self, key: Key, sidecars: list[str], now_ms: int) -> OffsetQuery | None:
        """Return the query to send to one of the group's sidecars now."""
        ...

    def query_answered(self, key: Key, query: OffsetQuery, answer: OrderAnswer, now_ms: int) -> None:
        """Add the answer to a query; one without an id says why there is none."""
        ...


class OffsetOrders:
    """Queries under way; thread-confined to one event loop. Invariant: every query that was taken is answered, or `run` has ended."""

    def __init__(
        self,
        fleet: Fleet,
        lookups: Lookups,
        monotonic_s: Callable[[], float],
        warn: Callable[[str], None],
        round_s: float = ROUND_S,
    ) -> None:
        self._fleet = fleet
        self._lookups = lookups
        self._monotonic_s = monotonic_s
        self._warn = warn
        self._round_s = round_s
        self._under_way = 0
        # By group: the last error that a sidecar has answered, which is logged once.
        self._errors: dict[Key, str] = {}

    async def run(self) -> None:
        """Send queries until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                for key, sidecars in self._connected().items():
                    if self._under_way < QUERIES_AT_A_TIME:
                        query = self._lookups.next_query(key, sidecars, self._now_ms())
                        if query is not None:
                            self._under_way += 1
                            tasks.create_task(self._ask(key, query))
                await asyncio.sleep(self._round_s)

    def _connected(self) -> dict[Key, list[str]]:
        """Return the connected sidecars of each group, and forget the errors of groups that have none."""
        found: dict[Key, list[str]] = defaultdict(list)
        for each in self._fleet.connected:
            found[key_of(each)].append(each.sidecar.pod)
        self._errors = {key: error for key, error in self._errors.items() if key in found}
        return found

    async def _ask(self, key: Key, query: OffsetQuery) -> None:
        try:
            sidecar = SidecarRef(key.namespace, query.sidecar)
            answer = await query_offsets(self._fleet, sidecar, query.request())
        finally:
            self._under_way -= 1
        self._lookups.query_answered(key, query, answer, self._now_ms())
        if not answer.error:
            self._errors.pop(key, None)
        elif answer.order_id and self._errors.get(key) != answer.error:
            self._errors[key] = answer.error
            self._warn(
                f"{query.sidecar} of {key.namespace}/{key.name} cannot look up offsets: {answer.error}"
            )

    def _now_ms(self) -> int:
        return int(self._monotonic_s() * 1000)
