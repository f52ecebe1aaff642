"""
HTTP server of the web page: its files, state as JSON and as server-sent events, scaling and offset resets.

Loopback only, without a login. Pages of other origins in the same browser are rejected by Host, Origin, and the required JSON
content type, which they cannot send without a preflight.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Annotated, Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rota_operator.local.dashboard_state import DashboardState
from rota_operator.local.http_connection import Connection, message_response
from rota_operator.local.page_document import event_document, state_document
from rota_operator.overview.assignment import Partition
from rota_operator.overview.recording import Cursor
from rota_operator.resets.orders import Offsets
from rota_operator.spec.names import GroupId
from rota_operator.spec.scalars import Topic

# Minimum interval between two events of a stream.
EVENT_EVERY_S = 0.25
EVENT_STREAMS_MAX = 32
# Enough for the offsets of some ten thousand partitions.
BODY_BYTES_MAX = 256 * 1024
# Time limit for a client to read one event.
WRITE_TIMEOUT_S = 10
INT64_MAX = 2**63 - 1
LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?")
RESET_EXAMPLE = '{"group": "NAME", "offsets": {"TOPIC": {"0": NUMBER}}}'
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
# Scale a workload: its name and the number of replicas in, the error out (empty if none).
Scale = Callable[[str, int], str]
# Reset a group: its id and the offset of each partition in, the error out (empty if none).
Reset = Callable[[str, Offsets], Awaitable[str]]


class Page:
    """
    The request handlers; thread-confined to one event loop.

    Invariant: at most EVENT_STREAMS_MAX event streams are open.
    """

    def __init__(self, dashboard: DashboardState, scale: Scale, reset: Reset) -> None:
        self._dashboard = dashboard
        self._scale = scale
        self._reset = reset
        self._event_streams = 0

    def application(self) -> web.Application:
        """Create the aiohttp application."""
        application = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES_MAX)
        for path, (name, content_type) in FILES.items():
            application.router.add_get(path, file_handler(name, content_type))
        application.router.add_get("/api/state", self._state)
        application.router.add_get("/api/events", self._events, allow_head=False)
        application.router.add_post("/api/scale", self._scale_workload)
        application.router.add_post("/api/reset", self._reset_offsets)
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = error_response(forbidden_reason(request), 403) or await handler(request)
        except web.HTTPRequestEntityTooLarge:
            response = message_response(413, f"request body exceeds {BODY_BYTES_MAX} bytes")
        except web.RequestPayloadError:
            response = message_response(400, "cannot decode the request body; check its Content-Encoding")
        except web.HTTPException as error:
            available = "GET /, /api/state, /api/events; POST /api/scale, /api/reset"
            response = message_response(
                error.status, f"unknown endpoint {request.method} {request.path}; available: {available}"
            )
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _state(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text=state_document(self._dashboard.view()), content_type="application/json")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self._event_streams >= EVENT_STREAMS_MAX:
            return message_response(503, f"too many event streams (at most {EVENT_STREAMS_MAX}); close one")
        self._event_streams += 1
        assert isinstance(request.protocol, Connection)
        request.protocol.keep()
        try:
            return await self._stream_events(request)
        finally:
            self._event_streams -= 1

    async def _stream_events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        cursors: Mapping[str, Cursor] = {}
        while True:
            recorded = self._dashboard.recorded_since(cursors)
            cursors = {each.group_id: each.cursor for each in recorded}
            document = event_document(self._dashboard.view(), recorded)
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    await response.write(f"data: {document}\n\n".encode())
            except (ConnectionError, TimeoutError):
                # The client is gone, or too slow: a browser reconnects by itself.
                return response
            wait_for_change = asyncio.ensure_future(self._dashboard.wait_for_change())
            try:
                await asyncio.sleep(EVENT_EVERY_S)
                await wait_for_change
            finally:
                wait_for_change.cancel()

    async def _scale_workload(self, request: web.Request) -> web.StreamResponse:
        body, wrong = await parse_json(request)
        if wrong is not None:
            return wrong
        problem = scale_error(body) or self._scale(body["workload"], body["replicas"])
        return error_response(problem, 400) or message_response(200, "done")

    async def _reset_offsets(self, request: web.Request) -> web.StreamResponse:
        body, wrong = await parse_json(request)
        if wrong is not None:
            return wrong
        if (offsets := parse_offsets(body)) is None:
            return message_response(400, f"invalid reset; expected {RESET_EXAMPLE}")
        return error_response(await self._reset(body["group"], offsets), 409) or message_response(200, "done")


def file_handler(name: str, content_type: str) -> Handler:
    """Create the handler of one of the page's files, which is read once."""
    text = (files(__package__) / "web" / name).read_text()

    async def respond(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, content_type=content_type, charset="utf-8")

    return respond


async def parse_json(request: web.Request) -> tuple[Any, web.Response | None]:
    """Return the parsed body, or the error response."""
    if request.content_type != "application/json":
        return None, message_response(415, "Content-Type must be application/json")
    try:
        return json.loads(await request.read()), None
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else error
        return None, message_response(400, f"invalid JSON: {what}")


def parse_offsets(body: object) -> Offsets | None:
    """Return the offsets of a reset request; None if it is invalid."""
    try:
        return ResetRequest.model_validate(body).by_partition
    except ValidationError:
        return None


# Each number has one spelling.
PartitionNumber = Annotated[str, Field(pattern="^(0|[1-9][0-9]{0,8})$")]
Offset = Annotated[int, Field(ge=0, le=INT64_MAX)]


class ResetRequest(BaseModel):
    """Body of `POST /api/reset`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    group: GroupId
    # By topic and partition.
    offsets: dict[Topic, dict[PartitionNumber, Offset]]

    @property
    def by_partition(self) -> Offsets | None:
        """Offsets by partition; None if there are none."""
        found = {
            Partition(topic, int(number)): offset
            for topic, offsets in self.offsets.items()
            for number, offset in offsets.items()
        }
        return found or None


def scale_error(body: object) -> str:
    """Validate the body of `POST /api/scale`; return the error, or an empty string."""
    if not isinstance(body, dict) or body.keys() != {"workload", "replicas"}:
        return 'invalid request; expected {"workload": "NAME", "replicas": NUMBER}'
    if not isinstance(body["workload"], str):
        return "workload must be a string"
    if not isinstance(body["replicas"], int) or isinstance(body["replicas"], bool):
        return "replicas must be an integer"
    return ""


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
async def serve_page(page: Page, address: str) -> AsyncIterator[None]:
    """Serve the page on the address until the context exits."""
    host, _, port = address.rpartition(":")
    # Open event streams would delay the shutdown.
    runner = web.AppRunner(page.application(), access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    assert runner.server is not None
    server = await asyncio.get_running_loop().create_server(
        partial(Connection, runner.server, HEADERS, {}), host, int(port)
    )
    try:
        yield
    finally:
        server.close()
        await runner.cleanup()
