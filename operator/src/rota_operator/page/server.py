"""
HTTP server of the web page: its files, the state as JSON and as server-sent events.

Loopback only. Pages of other origins in the same browser are rejected by Host and Origin. Each request, and each event of a stream,
asks `open_source` for what its reader may see now; that may refuse.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import NamedTuple, Protocol

from aiohttp import web

from rota_operator.overview.recording import Cursor
from rota_operator.page.http_connection import Connection, message_response

# Minimum interval between two events of a stream.
EVENT_EVERY_S = 0.25
EVENT_STREAMS_MAX = 32
# Enough for the offsets of some ten thousand partitions.
BODY_BYTES_MAX = 256 * 1024
# Time limit for a client to read one event.
WRITE_TIMEOUT_S = 10
LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?")
# By path: the file in `web`, and its type. Scripts are modules, which import each other.
FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    **{
        f"/{name}.js": (f"{name}.js", "text/javascript")
        for name in ("page", "charts", "elements", "format", "ownership", "recorded", "signs")
    },
}
# The page's own files and requests to its own origin are allowed, and nothing else: no scripts or styles in its text.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Of every response.
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Event(NamedTuple):
    """Event of a stream."""

    # JSON without line breaks.
    document: str
    # Of the reader after it, by group id; passed in for the next event.
    cursors: Mapping[str, Cursor]


class PageSource(Protocol):
    """Groups and workloads that one reader sees."""

    async def state(self) -> str:
        """Return the state as JSON."""
        ...

    async def event(self, cursors: Mapping[str, Cursor]) -> Event:
        """Return the state with what was recorded after the cursors."""
        ...

    async def wait_for_change(self) -> None:
        """Return when the next event is due."""
        ...


class Refused(Exception):
    """The reader gets no state; the message is a sentence for it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


# Raises Refused.
OpenSource = Callable[[web.Request], Awaitable[PageSource]]


class PageServer:
    """
    The request handlers; thread-confined to one event loop.

    Invariant: at most EVENT_STREAMS_MAX event streams are open.
    """

    def __init__(self, open_source: OpenSource, changes: Mapping[str, Handler]) -> None:
        """`changes` are handlers of POST requests by path; empty: the page is read-only."""
        self._open_source = open_source
        self._changes = changes
        self._event_streams = 0

    def application(self) -> web.Application:
        """Create the aiohttp application."""
        application = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES_MAX)
        for path, (name, content_type) in FILES.items():
            application.router.add_get(path, file_handler(name, content_type))
        application.router.add_get("/api/state", self._state)
        application.router.add_get("/api/events", self._events, allow_head=False)
        for path, change in self._changes.items():
            application.router.add_post(path, change)
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = error_response(forbidden_reason(request), 403) or await handler(request)
        except Refused as refused:
            response = message_response(refused.status, str(refused))
        except web.HTTPRequestEntityTooLarge:
            response = message_response(413, f"request body exceeds {BODY_BYTES_MAX} bytes")
        except web.RequestPayloadError:
            response = message_response(400, "cannot decode the request body; check its Content-Encoding")
        except web.HTTPException as error:
            posts = f"; POST {', '.join(self._changes)}" if self._changes else ""
            available = f"GET /, /api/state, /api/events{posts}"
            response = message_response(
                error.status, f"unknown endpoint {request.method} {request.path}; available: {available}"
            )
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _state(self, request: web.Request) -> web.StreamResponse:
        source = await self._open_source(request)
        return web.Response(text=await source.state(), content_type="application/json")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self._event_streams >= EVENT_STREAMS_MAX:
            return message_response(503, f"too many event streams (at most {EVENT_STREAMS_MAX}); close one")
        self._event_streams += 1
        try:
            source = await self._open_source(request)
            assert isinstance(request.protocol, Connection)
            request.protocol.keep()
            return await self._stream_events(request, source)
        finally:
            self._event_streams -= 1

    async def _stream_events(self, request: web.Request, source: PageSource) -> web.StreamResponse:
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        cursors: Mapping[str, Cursor] = {}
        while True:
            document, cursors = await source.event(cursors)
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    await response.write(f"data: {document}\n\n".encode())
            except (ConnectionError, TimeoutError):
                # The client is gone, or too slow: a browser reconnects by itself.
                return response
            wait_for_change = asyncio.ensure_future(source.wait_for_change())
            try:
                await asyncio.sleep(EVENT_EVERY_S)
                await wait_for_change
            finally:
                wait_for_change.cancel()
            try:
                source = await self._open_source(request)
            except Refused:
                # The browser connects again, and gets the reason.
                return response


def file_handler(name: str, content_type: str) -> Handler:
    """Create the handler of one of the page's files, which is read once."""
    text = (files(__package__) / "web" / name).read_text()

    async def respond(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, content_type=content_type, charset="utf-8")

    return respond


def forbidden_reason(request: web.Request) -> str:
    """Return the reason to reject a request with a foreign Host or Origin, or an empty string."""
    if LOOPBACK.fullmatch(request.host) is None:
        return f"host {request.host!r} is not allowed; use 127.0.0.1"
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"http://{request.host}":
        return f"origin {origin} is not allowed; open http://{request.host}"
    return ""


def error_response(wrong: str, status: int) -> web.Response | None:
    """Return an error response, or None for an empty message."""
    return message_response(status, wrong) if wrong else None


@asynccontextmanager
async def serve_page(page: PageServer, address: str) -> AsyncIterator[str]:
    """Serve the page on HOST:PORT until the context exits; yields the address with its port. Raises OSError."""
    host, _, port = address.rpartition(":")
    # Open event streams would delay the shutdown.
    runner = web.AppRunner(page.application(), access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    assert runner.server is not None
    try:
        server = await asyncio.get_running_loop().create_server(
            partial(Connection, runner.server, HEADERS, {}), host.strip("[]"), int(port)
        )
    except OSError:
        await runner.cleanup()
        raise
    try:
        yield f"{host}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await runner.cleanup()
