"""
Manual partition assignment, as Kafka's `assign`: posts assignments and revocations to the delivery core without a member.

Used by the delivery driver, which keeps the member out of the group meanwhile.
"""

import asyncio
from collections.abc import Callable

from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.member.identity import NO_GENERATION, UNKNOWN_INCARNATION
from rota_sidecar.core.member.partitions import Partition, Tenure
from rota_sidecar.membership.driver import wait_until_set

# Time in s after the deadline of a revocation; the core finishes it before the deadline.
SLACK_S = 1


class ManualAssignment:
    """The manually assigned partitions; empty at first. Invariant: one call of `pick` runs at a time."""

    def __init__(self, post: Callable[[on.Event], None], now_ms: Callable[[], int]) -> None:
        self._post = post
        self._now_ms = now_ms
        self._partitions: frozenset[Partition] = frozenset()
        self._last_revocation = 0
        self._released: dict[int, asyncio.Event] = {}

    @property
    def partitions(self) -> frozenset[Partition]:
        """Return the assigned partitions."""
        return self._partitions

    async def pick(self, partitions: frozenset[Partition], number: Callable[[], int], within_ms: int) -> None:
        """Replace the assignment: revoke removed partitions within `within_ms`, then assign added ones under tenure `number()`."""
        gone, new = self._partitions - partitions, partitions - self._partitions
        if gone:
            await self._revoke(gone, within_ms)
        self._partitions = partitions
        if new:
            tenure = Tenure(number(), "", NO_GENERATION, UNKNOWN_INCARNATION)
            self._post(on.Assigned(tenure, new, is_manual=True))

    def is_released(self, revocation: int) -> bool:
        """Handle ReleasePartitions of the core; return True if the revocation was one of a manual assignment."""
        event = self._released.get(revocation)
        if event is not None:
            event.set()
        return event is not None

    async def _revoke(self, gone: frozenset[Partition], within_ms: int) -> None:
        # Negative, because the revocations of a member have positive numbers.
        self._last_revocation -= 1
        revocation = self._last_revocation
        released = self._released[revocation] = asyncio.Event()
        try:
            self._post(on.Revoke(revocation, gone, self._now_ms() + within_ms))
            await wait_until_set(released, within_ms / 1000 + SLACK_S)
        finally:
            del self._released[revocation]
        if released.is_set():
            self._post(on.Revoked(gone))
        else:
            self._post(on.Lost(gone, "the application did not release them in time"))
