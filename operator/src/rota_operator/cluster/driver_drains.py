"""
Drains the drivers of SparkApplications that are to go, by Fleet orders in the background, beside the reconciles.

A plan orders the drain of a driver; once its sidecar has answered, or has not in time, the ConsumerGroup is reconciled again, and the plan
sees the result. A result counts as long as the drain lasts, and RESULT_S at least: after that, a driver that is still there works again, and
is drained anew.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rota_operator.cluster.queues import Key
from rota_operator.cluster.settings_orders import Fleet
from rota_operator.fleet.principal import SidecarRef
from rota_operator.reconcile.actions import DrainDriver
from rota_operator.reconcile.observed import DrainProgress
from rota_proto.fleet.v1 import fleet_pb2 as pb

# Of an answer, beyond the time that the drain may take.
ANSWER_S = 5.0
# A reconcile follows an answer; it may have to be tried again.
RESULT_S = 30.0


class OrderedDrain(NamedTuple):
    """A drain of a driver: of which group, how far it is, and until when that counts, in seconds of the clock."""

    key: Key
    progress: DrainProgress
    until_s: float


class DriverDrains:
    """
    Drains by the uid of the driver's pod; thread-confined to one event loop.

    Invariant: a driver has at most one order under way.
    """

    def __init__(
        self, fleet: Fleet, monotonic_s: Callable[[], float], on_over: Callable[[Key], None]
    ) -> None:
        """`on_over` is called with the group of a drain that is over."""
        self._fleet = fleet
        self._monotonic_s = monotonic_s
        self._on_over = on_over
        self._drains: dict[str, OrderedDrain] = {}
        self._requests: asyncio.Queue[tuple[Key, DrainDriver]] = asyncio.Queue()

    def order(self, key: Key, action: DrainDriver) -> None:
        """Order a drain; no-op while one is under way, or its result counts."""
        if action.uid in self.progress(key):
            return
        until_s = self._monotonic_s() + action.within_ms / 1000 + 2 * ANSWER_S
        self._drains[action.uid] = OrderedDrain(key, DrainProgress(is_over=False), until_s)
        self._requests.put_nowait((key, action))

    def progress(self, key: Key) -> Mapping[str, DrainProgress]:
        """Return the drains of a group's drivers."""
        now_s = self._monotonic_s()
        self._drains = {uid: each for uid, each in self._drains.items() if each.until_s > now_s}
        return {uid: each.progress for uid, each in self._drains.items() if each.key == key}

    async def run(self) -> None:
        """Send orders until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                key, action = await self._requests.get()
                tasks.create_task(self._drain(key, action))

    async def _drain(self, key: Key, action: DrainDriver) -> None:
        ends_s = self._monotonic_s() + action.within_ms / 1000
        order = pb.SidecarOrder(drain=pb.Drain(within_ms=action.within_ms))
        sidecar = SidecarRef(key.namespace, action.pod)
        answer = await self._fleet.order(sidecar, order, action.within_ms / 1000 + ANSWER_S)
        progress = DrainProgress(is_over=True, problem=answer.error)
        self._drains[action.uid] = OrderedDrain(key, progress, max(ends_s, self._monotonic_s() + RESULT_S))
        self._on_over(key)
