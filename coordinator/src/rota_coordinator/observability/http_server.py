"""
The coordinator's page for probes and Prometheus: GET, one answer, and the connection is closed.

Plain HTTP on purpose: a kubelet probes the pod's address and has no certificate for us. What it shows are numbers and
states, never a group's name or a member's; beyond loopback it listens only where `--http-listen` says so.
"""

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

REQUEST_BYTES_MAX = 8 * 1024
CONNECTIONS_MAX = 64
# For the whole of a request, and for the whole of its answer.
PATIENCE_S = 10
END_OF_HEAD = b"\r\n\r\n"


class CannotListen(Exception):
    """The address is taken, or not ours."""


class Page(NamedTuple):
    """What a path shows."""

    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Pages = Mapping[str, Callable[[], Page]]


def sentence(status: HTTPStatus, text: str) -> Page:
    """A page of one line."""
    return Page(status, f"{text}\n".encode())


def probes(missing: Callable[[], str]) -> Pages:
    """Whether the process lives, and whether it serves all that it should; `missing` says what is not there yet."""

    def ready() -> Page:
        lacking = missing()
        status = HTTPStatus.SERVICE_UNAVAILABLE if lacking else HTTPStatus.OK
        return sentence(status, lacking or "ready")

    # That the loop came round to answer is all that there is to say.
    return {"/livez": lambda: sentence(HTTPStatus.OK, "alive"), "/readyz": ready}


class HealthServer:
    """A listening socket, and the pages behind it."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        # The oldest first.
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self, address: str) -> str:
        """Listen; the address with its port, if that was 0."""
        host, _, port = address.rpartition(":")
        try:
            self._server = await asyncio.start_server(
                self._connected, host.strip("[]"), int(port), limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            raise CannotListen(
                f"--http-listen {address} cannot be listened on ({error.strerror}); name another address"
            ) from error
        return f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Listen no more; who is still being answered is cut off."""
        assert self._server is not None
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            # Probes and Prometheus ask at once and go: the oldest is the one that does neither.
            self._open.pop(next(iter(self._open))).transport.abort()
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(lambda done: self._open.pop(done, None))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                page = await self._page(reader)
                writer.write(rendered(page))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, TimeoutError):
            pass  # whoever asked is gone, or too slow: there is nobody to tell
        finally:
            writer.transport.abort()

    async def _page(self, reader: asyncio.StreamReader) -> Page:
        try:
            head = await reader.readuntil(END_OF_HEAD)
        except asyncio.LimitOverrunError:
            return sentence(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"at most {REQUEST_BYTES_MAX} bytes")
        method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        path, _, version = rest.partition(" ")
        if not version.startswith("HTTP/1."):
            return sentence(HTTPStatus.BAD_REQUEST, "this is no HTTP/1 request")
        if method != "GET":
            return sentence(HTTPStatus.METHOD_NOT_ALLOWED, "GET only")
        show = self._pages.get(path.partition("?")[0])
        if show is None:
            return sentence(HTTPStatus.NOT_FOUND, f"there are {', '.join(self._pages)}")
        return show()


def rendered(page: Page) -> bytes:
    """A page as the bytes of an answer."""
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + page.body
