"""
Stands between a server and its callers, and keeps the server's answers back when it is told to.

A kill alone seldom comes between a write and its answer. With this it does: what is kept back was done, and its caller
does not know.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

HOST = "127.0.0.1"
READ_BYTES = 1 << 16
# Of a frame of HTTP/2: three bytes of length, its type, and more that does not matter here.
FRAME_HEADER_BYTES = 9
DATA, HEADERS, CONTINUATION = 0, 1, 9
# What answers travel in; all else keeps the connection going.
ANSWERS = {DATA, HEADERS, CONTINUATION}
Result = TypeVar("Result")


@dataclass(slots=True)
class Frames:
    """Cuts what a server says into frames."""

    _pending: bytes = b""

    def cut(self, content: bytes) -> Iterator[tuple[int, bytes]]:
        """Type and bytes of each frame that is complete with this."""
        self._pending += content
        while len(self._pending) >= FRAME_HEADER_BYTES:
            size = FRAME_HEADER_BYTES + int.from_bytes(self._pending[:3], "big")
            if len(self._pending) < size:
                break
            frame, self._pending = self._pending[:size], self._pending[size:]
            yield frame[3], frame


class Relay:
    """One server, at a port; any number of callers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._silent = False
        # Frames of answers, since they are kept back.
        self.withheld = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._connect, HOST))
        own_port: int = self._server.sockets[0].getsockname()[1]
        self.address = f"{HOST}:{own_port}"

    def withhold(self) -> None:
        """From now on no answer comes through; `withheld` counts them."""
        self._run(self._set_silent(silent=True))

    def release(self) -> None:
        """Forward new connections again. A client that was kept waiting has to reconnect."""
        self._run(self._set_silent(silent=False))

    async def _set_silent(self, *, silent: bool) -> None:
        self._silent = silent
        self.withheld = 0

    def close(self) -> None:
        """Close all connections."""

        async def end() -> None:
            self._server.close()
            connections = asyncio.all_tasks() - {asyncio.current_task()}
            for connection in connections:
                connection.cancel()
            await asyncio.gather(*connections, return_exceptions=True)

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _connect(self, caller: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        try:
            server, to = await asyncio.open_connection(HOST, self._port)
        except OSError:
            # It is being killed. The caller learns it as it would from the server's own port.
            back.close()
            return
        pumps = [
            asyncio.create_task(self._questions(caller, to)),
            asyncio.create_task(self._answers(server, back)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for writer in (to, back):
                writer.close()

    async def _questions(self, caller: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while content := await caller.read(READ_BYTES):
                to.write(content)
                await to.drain()

    async def _answers(self, server: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        frames, dumb = Frames(), False
        with suppress(ConnectionError):
            while content := await server.read(READ_BYTES):
                for kind, frame in frames.cut(content):
                    if kind in ANSWERS and (dumb or self._silent):
                        # With a part of an answer missing the rest makes no sense.
                        dumb = True
                        self.withheld += kind == DATA
                    else:
                        back.write(frame)
                await back.drain()
