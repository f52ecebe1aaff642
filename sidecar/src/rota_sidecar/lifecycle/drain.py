"""
Drains before the process ends: the application finishes what it has, and receives nothing more.

Ordered by SIGTERM, on the drain socket and by Fleet; `drain_orders` decides how long. Used by `process.sidecar`.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from rota_sidecar.lifecycle.drain_orders import DrainOrder, DrainOrders, OnExpiry, Source

# The part of the drain time that is kept for leaving the group, and its limit.
LEAVING_PART = 3
LEAVING_MAX_MS = 5_000
# The part of the drain time in which the application is served while a successor starts, and its limit.
SERVING_PART = 3
SERVING_MAX_MS = 10_000
# Of the time that is left: for revoking, and again for LeaveGroup; the rest is for closing connections.
REVOKING_SHARE = 0.4


class Drainable(Protocol):
    """The part of `delivery.driver` that drains."""

    async def drain(self, within_ms: int, *, leaves_group: bool = False, serves_ms: int | None = None) -> int:
        """
        Stop dispatch; return the number of records in flight when it is 0 or when the time limit has passed.

        With `leaves_group` a dynamic member leaves the group once the application has said goodbye too, until `undrain`; a static
        member gives its instance up then, if it may. With `serves_ms` it serves the application until a successor waits, for that long
        at most.
        """
        ...

    def undrain(self) -> None:
        """Resume dispatch."""
        ...


class DrainController:
    """
    Drains the sidecar for as long as an order is in force; create and use it on a running loop.

    Invariant: `status` is empty if and only if no drain order is in force, or the one that is waits for a successor.
    """

    def __init__(self, deliveries: Drainable, timeout_ms: int, log: Callable[[str, str], None]) -> None:
        self._deliveries = deliveries
        self._leaving_ms = min(timeout_ms // LEAVING_PART, LEAVING_MAX_MS)
        self._timeout_ms = timeout_ms - self._leaving_ms
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._orders = DrainOrders()
        self._timer: asyncio.TimerHandle | None = None
        # True if no record was in flight at the end of the last drain.
        self._is_drained = False
        self._changed = asyncio.Event()
        self._for_good: asyncio.Task[int] | None = None
        self._finishing_now: asyncio.Task[int] | None = None
        # Called with the reason when an order expires that ends in Then.LEAVE.
        self.leave: Callable[[str], None] = lambda reason: None
        # Return whether Fleet orders the hand-over of this member's instance once a successor waits; and whether that is waited for.
        self.may_await_successor: Callable[[], bool] = lambda: False
        self.awaits_successor: Callable[[], bool] = lambda: False

    @property
    def status(self) -> str:
        """State, reason and end of the drain, in one sentence; empty when the sidecar does not drain, or not yet."""
        if self.awaits_successor():
            return ""
        reason = self._orders.reason(self._now_ms())
        return reason and f"{'drained' if self._is_drained else 'draining'}: {reason}"

    @property
    def is_scaled_away(self) -> bool:
        """True if the group continues without this member: a static member then leaves the group too."""
        return self._orders.leaves_for_good

    async def finish(self) -> int:
        """Drain until the process ends; return the number of records that are still in flight."""
        if self._for_good is None:
            self._give(Source.SIGNAL, DrainOrder(None))
            self._for_good = asyncio.ensure_future(self._drain(self._timeout_ms))
        return await asyncio.shield(self._for_good)

    def revoke_within_ms(self, left_ms: float) -> int:
        """The time limit for revoking when the process is to end within `left_ms`, or when that time is over."""
        return int(max(left_ms, self._leaving_ms) * REVOKING_SHARE)

    def finish_now(self) -> None:
        """End the wait for verdicts now."""
        self._timeout_ms = 0
        if self._for_good is not None and not self._for_good.done() and self._finishing_now is None:
            # Its end completes the drain that is under way too.
            self._finishing_now = asyncio.ensure_future(self._deliveries.drain(0))

    async def expire_in(self, source: Source, within_ms: int, then: OnExpiry = OnExpiry.RESUME) -> int:
        """Drain for `within_ms`, replacing the source's earlier order; return the number of records still in flight."""
        if within_ms <= 0 and not self._orders.has(source):
            return 0
        # The pod ends: the group goes on with its successor. An order of Fleet says that none comes, and `then` that none is wanted.
        may_wait = source is Source.SOCKET and then is OnExpiry.RESUME and self.may_await_successor()
        self._give(source, DrainOrder(self._now_ms() + max(0, within_ms), then), serves=may_wait)
        if within_ms <= 0:
            self._expire()
            return 0
        if self._for_good is not None:
            return await asyncio.shield(self._for_good)
        # Whoever orders a drain from outside ends the pod: the group need not wait until the sidecar is told so.
        within_ms = min(within_ms, self._timeout_ms)
        serves_ms = min(within_ms // SERVING_PART, SERVING_MAX_MS) if may_wait else None
        return await self._drain(within_ms, leaves_group=True, serves_ms=serves_ms)

    async def drained(self) -> bool:
        """Wait until the sidecar is drained, for at most the time that a drain takes."""
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                while not self._is_drained:
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _drain(
        self, within_ms: int, *, leaves_group: bool = False, serves_ms: int | None = None
    ) -> int:
        left = await self._deliveries.drain(within_ms, leaves_group=leaves_group, serves_ms=serves_ms)
        # A drain may have expired meanwhile.
        self._is_drained = not left and bool(self.status)
        self._note_change()
        said = f"{left} records are still in flight and will be delivered again" if left else "drained"
        self._log("drained", said)
        return left

    def _give(self, source: Source, order: DrainOrder, *, serves: bool = False) -> None:
        """Put an order in force. Of one that `serves`, `observability.log_observer` logs when dispatch stops."""
        if self._orders.give(source, order) and not serves:
            reason = self._orders.reason(self._now_ms())
            self._log("draining", f"draining, dispatch has stopped: {reason}")
        self._set_timer()

    def _expire(self) -> None:
        match self._orders.expire(self._now_ms()):
            case OnExpiry.RESUME:
                self._is_drained = False
                self._log("undrained", "the drain order has expired: the member resumes")
                self._deliveries.undrain()
            case OnExpiry.LEAVE:
                self.leave("the drain order has expired: the member leaves the group, as ordered")
                return
            case None:
                pass
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        expiry_ms = self._orders.next_expiry_ms
        self._timer = (
            # A timer may fire within its resolution before its time.
            None if expiry_ms is None else self._loop.call_at(expiry_ms / 1000 + 0.001, self._expire)
        )

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
