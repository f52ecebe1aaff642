"""
Looks up the id of the Kafka cluster once, for the reports to Fleet. Run by `process.sidecar` with Fleet and Kafka only.

The operator compares it: `bootstrapServers` may change to other brokers of the same cluster only.
"""

import asyncio
from collections.abc import Awaitable, Callable

from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.membership.driver import wait_until_set

TIMEOUT_S = 10.0
RETRY_S = 5.0


class ClusterIdLookup:
    """Invariant: `found` is empty until a broker has answered, and never changes afterwards."""

    def __init__(self, look_up: Callable[[float], Awaitable[str]], on_found: Callable[[], None]) -> None:
        self._look_up = look_up
        self._on_found = on_found
        self.found = ""

    async def run(self) -> None:
        """Look it up until a broker answers."""
        while True:
            try:
                self.found = await self._look_up(TIMEOUT_S)
            except (Unreachable, Refused):
                # The member, which needs the same brokers, reports the problem.
                await wait_until_set(asyncio.Event(), RETRY_S)
            else:
                self._on_found()
                return
