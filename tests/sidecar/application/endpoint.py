"""An application that only speaks HTTP: it writes down what is posted to it, and answers what a test says."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Answering = Callable[["Posted"], Awaitable[bytes]]


@dataclass(frozen=True)
class Posted:
    """One request."""

    start: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["ce-id"]


def answer(status: str = "204 No Content", body: bytes = b"", **headers: str) -> bytes:
    """The bytes of an answer."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    length = "" if status.startswith("204") else f"Content-Length: {len(body)}\r\n"
    return f"HTTP/1.1 {status}\r\n{lines}{length}\r\n".encode() + body


@dataclass
class Endpoint:
    """Answers each post with the next of `answers`, and with 204 when there is none; empty bytes: closes instead."""

    port: int = 0
    answers: list[bytes] = field(default_factory=list)
    answering: Answering | None = None
    posted: list[Posted] = field(default_factory=list)
    connections: int = 0
    _open: "set[asyncio.Task[None]]" = field(default_factory=set)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/records?of=orders"

    async def until(self, count: int) -> None:
        """Wait for so many posts."""
        while len(self.posted) < count:
            self._news.clear()
            await self._news.wait()

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def end(self) -> None:
        """Close all connections."""
        open_ones = list(self._open)
        for task in open_ones:
            task.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                data = await self._answer(reader)
                if not data:
                    return
                writer.write(data)
                if b"Connection: close" in data:
                    await writer.drain()
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers["content-length"]))
        posted = Posted(head[0], headers, body)
        self.posted.append(posted)
        self._news.set()
        if self.answering is not None:
            return await self.answering(posted)
        return self.answers.pop(0) if self.answers else answer()


@asynccontextmanager
async def listening(endpoint: Endpoint | None = None, port: int = 0) -> AsyncIterator[Endpoint]:
    """An endpoint that answers."""
    endpoint = endpoint or Endpoint()
    server = await asyncio.start_server(endpoint.connected, "127.0.0.1", port)
    endpoint.port = server.sockets[0].getsockname()[1]
    try:
        yield endpoint
    finally:
        server.close()
        await endpoint.end()
        await server.wait_closed()
