"""
Closes connections of the gRPC port that take too much: it looks at the sockets, `Connections` decides.

gRPC accepts every connection, and buffers what arrives on it, without asking. The guard looks several times a second, and
less often where there are many connections and none had to be closed, so that it takes at most a fiftieth of a core.
"""

import asyncio
from collections.abc import Callable

from rota_coordinator.security.connections import Closing, Connections
from rota_coordinator.security.sockets import AcceptedSockets

LOOK_EVERY_S = 0.1
# A look may take this part of the time between two looks.
SHARE = 0.02


class ConnectionGuard:
    """Watches the connections of one port."""

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
        """Look until cancelled."""
        clock = asyncio.get_running_loop().time
        try:
            while True:
                began_s = clock()
                is_quiet = self.look() == 0
                await asyncio.sleep(max(LOOK_EVERY_S, (clock() - began_s) / SHARE if is_quiet else 0))
        finally:
            self._sockets.close()

    def look(self) -> int:
        """Look at every open connection once, and close those that `Connections` names: how many."""
        received = self._sockets.received_bytes()
        now_s = asyncio.get_running_loop().time()
        closings = self._connections.observe(received, now_s, self._sockets.room())
        for closing in closings:
            self._close(closing)
        return len(closings)

    def disconnect(self, closing: Closing) -> None:
        """Close a connection now; it may have opened after the last look."""
        self._sockets.received_bytes()
        self._close(closing)

    def _close(self, closing: Closing) -> None:
        self._sockets.shut_down(closing.peer)
        self._report(closing)
