"""
The sidecar's two HTTP listeners: one request, one answer, and the connection is closed. Put together by `serving`.

The page answers probes and Prometheus on an address: it shows no record and no secret, and changes nothing. Plain HTTP on
purpose: a kubelet asks the pod's address and has no certificate for us. The drain listener is a unix socket for this user
alone: no browser and no other pod can open it.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from pathlib import Path as FilePath
from typing import NamedTuple

from rota_sidecar.config import private_socket
from rota_sidecar.config.parsing import is_loopback

REQUEST_BYTES_MAX = 8 * 1024
CONNECTIONS_MAX = 64
# For a whole request, and for its answer to be taken.
PATIENCE_S = 10
END_OF_HEAD = b"\r\n\r\n"
PORT = re.compile(r":[0-9]{1,5}$")


class CannotListen(Exception):
    """The address is taken, or not ours: one sentence."""


class Page(NamedTuple):
    """What a path shows."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class Path(NamedTuple):
    """What is at a path; it may take its time, and gets the query that stands behind the path."""

    show: Callable[[str], Awaitable[Page]]
    method: str = "GET"


Paths = Mapping[str, Path]


def sentence(status: HTTPStatus, text: str) -> Page:
    """A page of one line."""
    return Page(status, f"{text}\n".encode())


def probes(missing: Callable[[], str]) -> Paths:
    """Whether the process lives, and whether it does what it is there for; `missing` says why it does not."""

    async def alive(_query: str) -> Page:
        # That the loop came round to answer is all that there is to say.
        return sentence(HTTPStatus.OK, "alive")

    async def ready(_query: str) -> Page:
        lacking = missing()
        status = HTTPStatus.SERVICE_UNAVAILABLE if lacking else HTTPStatus.OK
        return sentence(status, lacking or "ready")

    return {"/livez": Path(alive), "/readyz": Path(ready)}


class Request(NamedTuple):
    """The head of a request; its body is not read."""

    method: str
    path: str
    query: str
    version: str
    headers: tuple[tuple[str, str], ...]

    def all(self, name: str) -> list[str]:
        """The values of a header, given in lower case."""
        return [value for key, value in self.headers if key == name]


def parsed(head: bytes) -> Request:
    """Split the head of a request; what is no HTTP has no version."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, _, rest = first.partition(" ")
    target, _, version = rest.partition(" ")
    path, _, query = target.partition("?")
    pairs = (line.partition(":") for line in lines)
    return Request(
        method, path, query, version, tuple((name.strip().lower(), value.strip()) for name, _, value in pairs)
    )


def refusal(request: Request, paths: Paths, *, is_private: bool) -> Page | None:
    """
    Why a request is not answered; None: it is.

    A private listener serves this machine alone: the name of another host, or an Origin, shows a page in a browser here
    that was made to ask (DNS rebinding, cross-site requests).
    """
    if not request.version.startswith("HTTP/1."):
        return sentence(HTTPStatus.BAD_REQUEST, "this is no HTTP/1 request")
    if is_private:
        hosts = request.all("host")
        if len(hosts) != 1 or not is_this_machine(hosts[0]):
            named = ", ".join(hosts) or "no host"
            return sentence(HTTPStatus.FORBIDDEN, f"{named} is not a name of this machine: ask for 127.0.0.1")
        if request.method != "GET" and request.all("origin"):
            return sentence(HTTPStatus.FORBIDDEN, "web pages may not ask for this: use `rota_sidecar drain`")
    path = paths.get(request.path)
    if path is None:
        return sentence(HTTPStatus.NOT_FOUND, f"there are {', '.join(paths)}")
    if request.method != path.method:
        return sentence(HTTPStatus.METHOD_NOT_ALLOWED, f"{path.method} only")
    return None


def is_this_machine(host: str) -> bool:
    """Whether a Host header, with or without a port, is an address of loopback or localhost."""
    return is_loopback(host if PORT.search(host) else f"{host}:0")


class HealthServer:
    """A listening socket, and what is behind it."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._is_private = True
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        # Connections that wait for their peer: to send its request, or to take its answer. The oldest first.
        self._waiting: dict[asyncio.StreamWriter, None] = {}

    async def start(self, address: str) -> str:
        """Listen; the address with its port, if that was 0. Raises CannotListen."""
        host, _, port = address.rpartition(":")
        self._is_private = is_loopback(address)
        try:
            self._server = await asyncio.start_server(
                self._connected, host.strip("[]"), int(port), limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            raise CannotListen(
                f"--http-listen {address} cannot be listened on ({error.strerror}): name another address"
            ) from None
        return f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def start_on_socket(self, path: FilePath) -> None:
        """Listen on a unix socket for this user alone. Raises CannotListen."""
        path = path.absolute()
        if problem := private_socket.problem_of(path):
            raise CannotListen(f"--drain-socket {path}: {problem}")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with private_socket.private():
                listener.bind(str(path))
            path.chmod(private_socket.PRIVATE)
            self._server = await asyncio.start_unix_server(
                self._connected, sock=listener, limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            listener.close()
            raise CannotListen(
                f"--drain-socket {path} cannot be listened on ({error.strerror}): see that this user may write there"
            ) from None

    async def stop(self) -> None:
        """Listen no more; who is still being answered is cut off."""
        if self._server is None:
            return
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            # A probe sends its request at once: a peer that holds a connection open gives way to it.
            oldest = next(iter(self._waiting), writer)
            self._waiting.pop(oldest, None)
            oldest.transport.abort()
            if oldest is writer:
                return
        self._waiting[writer] = None
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                asked = await self._asked(reader)
            self._waiting.pop(writer, None)
            page = asked if isinstance(asked, Page) else await self._paths[asked.path].show(asked.query)
            self._waiting[writer] = None
            async with asyncio.timeout(PATIENCE_S):
                writer.write(rendered(page))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, TimeoutError):
            pass  # whoever asked is gone, or too slow: there is nobody to tell
        finally:
            self._waiting.pop(writer, None)
            writer.transport.abort()

    async def _asked(self, reader: asyncio.StreamReader) -> Page | Request:
        """What is asked for, or why there is nothing."""
        try:
            head = await reader.readuntil(END_OF_HEAD)
        except asyncio.LimitOverrunError:
            return sentence(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"at most {REQUEST_BYTES_MAX} bytes")
        request = parsed(head)
        return refusal(request, self._paths, is_private=self._is_private) or request


def rendered(page: Page) -> bytes:
    """A page as the bytes of an answer."""
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + page.body
