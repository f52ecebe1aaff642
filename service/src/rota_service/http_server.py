"""
HTTP pages of a process, for probes, Prometheus and local commands: one request, one response, then the connection closes.

A part hands in its pages as `Paths` and starts the server on HOST:PORT, or on a unix socket that this user alone can open.
Plain HTTP on purpose: a kubelet probes the pod's address and has no certificate. A page on an address shows neither records
nor secrets. Bounds: `CONNECTIONS_MAX`, `REQUEST_BYTES_MAX`, and `TIMEOUT_S` for a request and for its response.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from pathlib import Path as FilePath
from typing import NamedTuple

from rota_service import private_files
from rota_service.addresses import BindError, is_loopback

REQUEST_BYTES_MAX = 8 * 1024
CONNECTIONS_MAX = 64
# Seconds for receiving a whole request, and for sending its response.
TIMEOUT_S = 10
END_OF_HEAD = b"\r\n\r\n"
PORT = re.compile(r":[0-9]{1,5}$")


class Page(NamedTuple):
    """The response to a request."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class Path(NamedTuple):
    """
    A path's method, and the coroutine that returns its page for the query string; the coroutine has no time limit.
    """

    show: Callable[[str], Awaitable[Page]]
    method: str = "GET"


Paths = Mapping[str, Path]


def text_page(status: HTTPStatus, text: str) -> Page:
    """Return a page of one line of text."""
    return Page(status, f"{text}\n".encode())


def probes(unready_reason: Callable[[], str]) -> Paths:
    """Return /livez, which succeeds while the event loop runs, and /readyz, which succeeds while there is no reason against it."""

    async def live(_query: str) -> Page:
        return text_page(HTTPStatus.OK, "alive")

    async def ready(_query: str) -> Page:
        reason = unready_reason()
        status = HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK
        return text_page(status, reason or "ready")

    return {"/livez": Path(live), "/readyz": Path(ready)}


class Request(NamedTuple):
    """The head of a request; the body is not read."""

    method: str
    path: str
    query: str
    # Empty where the bytes are not HTTP.
    version: str
    # Header names in lower case, with their values.
    headers: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        """Return the values of a header, named in lower case."""
        return [value for key, value in self.headers if key == name]


def parse_head(head: bytes) -> Request:
    """Split the head of a request."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, _, rest = first.partition(" ")
    target, _, version = rest.partition(" ")
    path, _, query = target.partition("?")
    pairs = (line.partition(":") for line in lines)
    return Request(
        method, path, query, version, tuple((name.strip().lower(), value.strip()) for name, _, value in pairs)
    )


def refusal(request: Request, paths: Paths, *, is_local: bool) -> Page | None:
    """
    Return the error page for a request that is not served; None for one that is.

    With `is_local`, requests that name another host, or changes that have an Origin, are refused: they come from a web page
    in a browser on this machine (DNS rebinding, cross-site requests).
    """
    if not request.version.startswith("HTTP/1."):
        return text_page(HTTPStatus.BAD_REQUEST, "expected an HTTP/1 request")
    if is_local:
        hosts = request.all("host")
        if len(hosts) != 1 or not is_local_host(hosts[0]):
            named = ", ".join(hosts) or "a request without Host"
            return text_page(
                HTTPStatus.FORBIDDEN, f"{named} does not name this machine; send the request to 127.0.0.1"
            )
        if request.method != "GET" and request.all("origin"):
            return text_page(
                HTTPStatus.FORBIDDEN, "requests from web pages are refused; send it from a local program"
            )
    path = paths.get(request.path)
    if path is None:
        return text_page(HTTPStatus.NOT_FOUND, f"unknown path; expected one of {', '.join(paths)}")
    if request.method != path.method:
        return text_page(HTTPStatus.METHOD_NOT_ALLOWED, f"{path.method} only")
    return None


def is_local_host(host: str) -> bool:
    """Return whether a Host header, with or without a port, is localhost or a loopback address."""
    return is_loopback(host if PORT.search(host) else f"{host}:0")


class HttpServer:
    """
    Server of pages on one listening socket. Invariant: at most `CONNECTIONS_MAX` connections are served at a time.

    A connection beyond that closes the oldest one that waits for its client, so that idle clients do not keep probes out.
    """

    def __init__(self, paths: Paths, flag: str, *, checks_host: bool) -> None:
        self._paths = paths
        # The option that gave the address; errors name it.
        self._flag = flag
        # On a loopback address or a unix socket: refuse requests that name another host.
        self._checks_host = checks_host
        self._is_local = checks_host
        self._server: asyncio.Server | None = None
        self._is_stopped = False
        # The connection of each task that serves one; it is cut off when the task is done.
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        # Connections that wait for the client, to send its request or to take its response. The oldest first.
        self._waiting: dict[asyncio.StreamWriter, None] = {}

    async def start(self, address: str) -> str:
        """Listen on HOST:PORT; return the address with its actual port, which differs if PORT is 0. Raises BindError."""
        host, _, port = address.rpartition(":")
        self._is_local = self._checks_host and is_loopback(address)
        try:
            self._server = await asyncio.start_server(
                self._on_connect, host.strip("[]"), int(port), limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            raise BindError(
                f"{self._flag} {address} cannot be listened on ({error.strerror}); name another address"
            ) from None
        return f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def start_on_socket(self, path: FilePath) -> None:
        """Listen on a unix socket that this user alone can open. Raises BindError."""
        path = path.absolute()
        if problem := private_files.socket_problem(path):
            raise BindError(f"{self._flag} {path}: {problem}")
        try:
            self._server = await asyncio.start_unix_server(
                self._on_connect, sock=private_files.bound_socket(path), limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            raise BindError(
                f"{self._flag} {path} cannot be listened on ({error.strerror}); check that this user may write there"
            ) from None

    async def stop(self) -> None:
        """Stop listening and cut off open connections; without effect before `start`."""
        if self._server is None:
            return
        self._is_stopped = True
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    def _on_connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_stopped:
            # It was accepted while the server stopped.
            writer.transport.abort()
            return
        if len(self._open) >= CONNECTIONS_MAX:
            # A probe sends its request at once; the oldest connection that waits is from a client that does not.
            oldest = next(iter(self._waiting), writer)
            self._waiting.pop(oldest, None)
            oldest.transport.abort()
            if oldest is writer:
                return
        self._waiting[writer] = None
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(self._cut_off)

    def _cut_off(self, task: asyncio.Task[None]) -> None:
        # Not in the task itself: one that is cancelled before its first step runs none of its code.
        writer = self._open.pop(task)
        self._waiting.pop(writer, None)
        writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                request = await self._read(reader)
            self._waiting.pop(writer, None)
            page = (
                request if isinstance(request, Page) else await self._paths[request.path].show(request.query)
            )
            self._waiting[writer] = None
            async with asyncio.timeout(TIMEOUT_S):
                writer.write(rendered(page))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, TimeoutError):
            pass  # the client has left, or is too slow: no response can reach it

    async def _read(self, reader: asyncio.StreamReader) -> Request | Page:
        """Read a request that is to be served, or the error page for it."""
        try:
            head = await reader.readuntil(END_OF_HEAD)
        except asyncio.LimitOverrunError:
            return text_page(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"at most {REQUEST_BYTES_MAX} bytes")
        request = parse_head(head)
        return refusal(request, self._paths, is_local=self._is_local) or request


def rendered(page: Page) -> bytes:
    """Return the bytes of a response."""
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + page.body
