"""

Closes connections of the gRPC port that exceed a limit: reads the sockets, and closes those that `Connections` returns.
gRPC accepts every connection and buffers all that it receives. The guard checks several times a second, and less often
with many connections of which none had to be closed, so that it takes at most 2 % of a core.
"""

import asyncio
from collections.abc import Callable

from rota_coordinator.security.connections import Closing, Connections
from rota_coordinator.security.sockets import AcceptedSockets

LOOK_EVERY_S = 0.1
# Maximum ratio of the duration of a check to the interval between checks.
SHARE = 0.02


class ConnectionGuard:
    """Enforces the limits on the connections of one port."""

    def __init__(
        self,
        connections: Connections,
        sockets: AcceptedSockets,
        report: Callable[[Closing], None],
    ) -> None:
        self._connections = connections
        self._sockets = sockets
        self._report = report

    async def run(self) -> None:
        """Check the connections periodically until cancelled."""
        clock = asyncio.get_running_loop().time
        try:
            while True:
                began_s = clock()
                is_quiet = self.look() == 0
                await asyncio.sleep(max(LOOK_EVERY_S, (clock() - began_s) / SHARE if is_quiet else 0))
        finally:
            self._sockets.close()

    def look(self) -> int:
        """Check all open connections once; close those beyond a limit, and return their number."""
        received = self._sockets.received_bytes()
        now_s = asyncio.get_running_loop().time()
        closings = self._connections.observe(received, now_s, self._sockets.room())
        for closing in closings:
            self._close(closing)
        return len(closings)

    def disconnect(self, closing: Closing) -> None:
        """Close a connection at once, even one that opened after the last check."""
        self._sockets.received_bytes()
        self._close(closing)

    def _close(self, closing: Closing) -> None:
        if self._sockets.shut_down(closing.peer):
            self._connections.connection_closed()
            self._report(closing)
