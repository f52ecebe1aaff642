"""
Resets the offsets of a group through its running members: suspend, set offsets, resume. Called by the page.

Offsets that a rebalance left unset are ordered from the next owner. Members are always resumed at the end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from rota_operator.local.dashboard_state import DashboardState
from rota_operator.overview.assignment import Partition
from rota_operator.overview.view import EventKind
from rota_operator.resets.orders import Offsets, ResetOrder, reset_orders
from rota_proto.fleet.v1 import fleet_pb2 as pb

# Time limits of the whole reset, and of one order.
RESET_TIMEOUT_S = 60.0
ORDER_TIMEOUT_S = 15.0
# Sends an order to a replica and waits for the answer, so many seconds; returns the error, or an empty string.
SendOrder: TypeAlias = Callable[[str, pb.SidecarOrder, float], Awaitable[str]]


class OffsetResets:
    """
    Offset resets of a runner's groups; thread-confined to one event loop.

    `replicas` returns the replicas of a group, `is_suspended` whether its spec suspends it. Invariant: at most one reset per
    group at a time.
    """

    def __init__(
        self,
        send_order: SendOrder,
        dashboard: DashboardState,
        replicas: Callable[[str], Sequence[str]],
        is_suspended: Callable[[str], bool],
    ) -> None:
        self._send_order = send_order
        self._dashboard = dashboard
        self._replicas = replicas
        self._is_suspended = is_suspended
        self._in_progress: set[str] = set()

    async def reset(self, group_id: str, offsets: Offsets) -> str:
        """Reset the offsets; return the error, or an empty string if all offsets are set."""
        if not self._replicas(group_id):
            return f"group {group_id} has no running replica here; reset it after stopping its members"
        if group_id in self._in_progress:
            return f"a reset of group {group_id} is in progress; retry when it has finished"
        self._in_progress.add(group_id)
        try:
            problem = await self._while_suspended(group_id, dict(offsets))
        finally:
            # Not before the members have resumed: the next reset would suspend members that this one is still
            # resuming.
            self._in_progress.discard(group_id)
        said = f"reset of {len(offsets)} partitions: {problem or 'done'}"
        self._dashboard.record_event(group_id, EventKind.RESET, said)
        return problem

    async def _while_suspended(self, group_id: str, remaining: dict[Partition, int]) -> str:
        try:
            problem = await self._order_all(group_id, pb.SidecarOrder(suspend=pb.Suspend()))
            problem = problem or await self._set(group_id, remaining)
        finally:
            still = await self._resume(group_id)
        return problem or still

    async def _resume(self, group_id: str) -> str:
        if self._is_suspended(group_id):
            return ""
        return await self._order_all(group_id, pb.SidecarOrder(resume=pb.Resume()))

    async def _order_all(self, group_id: str, order: pb.SidecarOrder) -> str:
        """Send an order to every replica; return the first error, or an empty string."""
        orders = (self._send_order(replica, order, ORDER_TIMEOUT_S) for replica in self._replicas(group_id))
        return next((problem for problem in await asyncio.gather(*orders) if problem), "")

    async def _set(self, group_id: str, remaining: dict[Partition, int]) -> str:
        problem = "the partition has no owner"
        try:
            async with asyncio.timeout(RESET_TIMEOUT_S):
                while True:
                    orders = reset_orders(remaining, self._dashboard.owned_partitions(group_id))
                    said = await asyncio.gather(*(self._send(name, order) for name, order in orders.items()))
                    for order, why_not in zip(orders.values(), said, strict=True):
                        if not why_not:
                            for partition in order.offsets:
                                del remaining[partition]
                        problem = why_not or problem
                    if not remaining:
                        return ""
                    await self._dashboard.wait_for_change()
        except TimeoutError:
            first = min(remaining)
            return f"{len(remaining)} offsets not set, beginning with {first.text} ({problem}); check the owners, and reset again"

    async def _send(self, sidecar: str, order: ResetOrder) -> str:
        for part in order.parts():
            if problem := await self._send_order(sidecar, part.message(), ORDER_TIMEOUT_S):
                return problem
        return ""
