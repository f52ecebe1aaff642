"""
The sidecar's page for probes, Prometheus and the pod's end: one request, one answer, and the connection is closed.

Plain HTTP on purpose: a kubelet asks the pod's address and has no certificate for us. It shows no record and no secret;
what it can be told is to drain, which ends nothing. Put together by `serving`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

REQUEST_BYTES_MAX = 8 * 1024
CONNECTIONS_MAX = 64
# For a whole request, and for its answer to be taken.
PATIENCE_S = 10
END_OF_HEAD = b"\r\n\r\n"


class CannotListen(Exception):
    """The address is taken, or not ours: one sentence."""


class Page(NamedTuple):
    """What a path shows."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class Path(NamedTuple):
    """What is at a path; it may take its time."""

    show: Callable[[], Awaitable[Page]]
    methods: tuple[str, ...] = ("GET",)


Paths = Mapping[str, Path]


def sentence(status: HTTPStatus, text: str) -> Page:
    """A page of one line."""
    return Page(status, f"{text}\n".encode())


def probes(missing: Callable[[], str]) -> Paths:
    """Whether the process lives, and whether it does what it is there for; `missing` says why it does not."""

    async def alive() -> Page:
        # That the loop came round to answer is all that there is to say.
        return sentence(HTTPStatus.OK, "alive")

    async def ready() -> Page:
        lacking = missing()
        status = HTTPStatus.SERVICE_UNAVAILABLE if lacking else HTTPStatus.OK
        return sentence(status, lacking or "ready")

    return {"/livez": Path(alive), "/readyz": Path(ready)}


class HealthServer:
    """A listening socket, and what is behind it."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self, address: str) -> str:
        """Listen; the address with its port, if that was 0. Raises CannotListen."""
        host, _, port = address.rpartition(":")
        try:
            self._server = await asyncio.start_server(
                self._connected, host.strip("[]"), int(port), limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            raise CannotListen(
                f"--http-listen {address} cannot be listened on ({error.strerror}): name another address"
            ) from None
        return f"{host}:{self._server.sockets[0].getsockname()[1]}"

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
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                asked = await self._asked(reader)
            page = asked if isinstance(asked, Page) else await asked.show()
            async with asyncio.timeout(PATIENCE_S):
                writer.write(rendered(page))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, TimeoutError):
            pass  # whoever asked is gone, or too slow: there is nobody to tell
        finally:
            writer.transport.abort()

    async def _asked(self, reader: asyncio.StreamReader) -> Page | Path:
        """What is asked for, or why there is nothing."""
        try:
            head = await reader.readuntil(END_OF_HEAD)
        except asyncio.LimitOverrunError:
            return sentence(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"at most {REQUEST_BYTES_MAX} bytes")
        method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        name, _, version = rest.partition(" ")
        if not version.startswith("HTTP/1."):
            return sentence(HTTPStatus.BAD_REQUEST, "this is no HTTP/1 request")
        path = self._paths.get(name.partition("?")[0])
        if path is None:
            return sentence(HTTPStatus.NOT_FOUND, f"there are {', '.join(self._paths)}")
        if method not in path.methods:
            return sentence(HTTPStatus.METHOD_NOT_ALLOWED, f"{' or '.join(path.methods)} only")
        return path


def rendered(page: Page) -> bytes:
    """A page as the bytes of an answer."""
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + page.body
