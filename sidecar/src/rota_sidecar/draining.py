"""
Before the pod goes: the application finishes what it has, and gets nothing more.

Asked for by `/drain` and by SIGTERM, for good; and by Fleet, until its order expires. Used by `serving`.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

# The part of the drain time that is kept for leaving the group, and its limit.
LEAVING_PART = 3
LEAVING_MAX_MS = 5_000
# Of the time that is left: for revoking, and again for LeaveGroup; the rest is for closing connections.
REVOKING_SHARE = 0.4


class Drains(Protocol):
    """Deliveries, as far as they drain; `rota_sidecar.delivering` has them."""

    async def drain(self, within_ms: int) -> int:
        """How many records are left in hand when none is, or when time is up."""
        ...

    def undrain(self) -> None:
        """Go on."""
        ...


class Draining:
    """Whether the sidecar drains. To be made and used on a running loop."""

    def __init__(self, deliveries: Drains, timeout_ms: int, tell: Callable[[str, str], None]) -> None:
        self._deliveries = deliveries
        self._leaving_ms = min(timeout_ms // LEAVING_PART, LEAVING_MAX_MS)
        self._timeout_ms = timeout_ms - self._leaving_ms
        self._tell = tell
        self._for_good: asyncio.Task[int] | None = None
        self._hurrying: asyncio.Task[int] | None = None
        self._until: asyncio.TimerHandle | None = None

    @property
    def why(self) -> str:
        """In one sentence; empty when it does not drain."""
        if self._for_good is not None:
            return "it drains, for its pod ends"
        if self._until is not None:
            return "it drains, for its group needs fewer members"
        return ""

    @property
    def is_scaled_away(self) -> bool:
        """Whether the group is to go on without it: then a static member leaves too."""
        return self._until is not None

    async def finish(self) -> int:
        """Drain, for good; how many records are left in the application's hands when that is done."""
        if self._for_good is None:
            self._tell("draining", "drains: nothing more is handed out")
            self._for_good = asyncio.ensure_future(self._deliveries.drain(self._timeout_ms))
            self._for_good.add_done_callback(self._finished)
        return await asyncio.shield(self._for_good)

    def revoke_within_ms(self, left_ms: float) -> int:
        """The time limit for revoking when the process is to end within `left_ms`, or when that time is over."""
        return int(max(left_ms, self._leaving_ms) * REVOKING_SHARE)

    def hurry(self) -> None:
        """Wait for nobody any more."""
        self._timeout_ms = 0
        if self._for_good is not None and not self._for_good.done() and self._hurrying is None:
            # The one that is under way learns of this one's end.
            self._hurrying = asyncio.ensure_future(self._deliveries.drain(0))

    async def expire_in(self, within_ms: int) -> int:
        """Drain until then; another order takes this one's place. How many records are left in hand."""
        if within_ms <= 0:
            self._expired()
            return 0
        if self._until is None:
            self._tell("draining", "drains, as Fleet told it to: nothing more is handed out")
        else:
            self._until.cancel()
        self._until = asyncio.get_running_loop().call_later(within_ms / 1000, self._expired)
        return await self._deliveries.drain(min(within_ms, self._timeout_ms))

    def _expired(self) -> None:
        if self._until is None:
            return
        self._until.cancel()
        self._until = None
        if self._for_good is None:
            self._tell("undrained", "the order to drain has expired: goes on")
            self._deliveries.undrain()

    def _finished(self, task: "asyncio.Task[int]") -> None:
        if task.cancelled() or task.exception() is not None:
            return
        left = task.result()
        rest = (
            f"{left} records are still in the application's hands, and will come again" if left else "drained"
        )
        self._tell("drained", rest)
