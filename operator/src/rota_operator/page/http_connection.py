"""HTTP connections of the page: errors as JSON, also for requests that are not valid HTTP."""

import asyncio
from collections.abc import Mapping

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from typing_extensions import override

# Event streams are counted separately.
CONNECTIONS_MAX = 64
SHOWN_LENGTH_MAX = 100


def message_response(status: int, text: str) -> web.Response:
    """JSON response with one message: `error` from status 400 on, else `message`."""
    return web.json_response({"error" if status >= 400 else "message": text}, status=status)


class Connection(RequestHandler):
    """
    Connection of one client. A request that the parser refuses never reaches the page's handlers; it is answered here.

    Invariant: `open_connections` has at most `CONNECTIONS_MAX`, the oldest first. A new one closes the oldest, so that idle
    clients take neither the page nor the file descriptors with which processes are started.
    """

    __slots__ = ("_headers", "_open_connections")

    def __init__(
        self, server: web.Server, headers: Mapping[str, str], open_connections: dict["Connection", None]
    ) -> None:
        super().__init__(server, loop=asyncio.get_running_loop())
        self._headers = headers
        self._open_connections = open_connections

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._open_connections[self] = None
        if len(self._open_connections) > CONNECTIONS_MAX:
            oldest = next(iter(self._open_connections))
            del self._open_connections[oldest]
            oldest.force_close()

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        self._open_connections.pop(self, None)
        super().connection_lost(exc)

    def keep(self) -> None:
        """Exempt the connection from the limit; its handler bounds the number of event streams."""
        self._open_connections.pop(self, None)

    @override
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        # Only the parser's first line: the others quote the request, and strangers could fill the log with
        # them.
        what = (message or "malformed").split("\n", 1)[0].rstrip(":.")[:SHOWN_LENGTH_MAX]
        answer = message_response(status, f"invalid HTTP request: {what}")
        answer.headers.update(self._headers)
        answer.force_close()
        return answer
