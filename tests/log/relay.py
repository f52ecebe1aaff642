"""
Stands between a server and its callers, and keeps the server's answers back when it is told to.

A kill alone seldom comes between a write and its answer. With this it does: what is kept back was done, and its caller
does not know.
"""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

HOST = "127.0.0.1"
READ_BYTES = 1 << 16
# Of a frame of HTTP/2: three bytes of length, its type, and more that does not matter here.
FRAME_HEADER_BYTES = 9
DATA = 0
Result = TypeVar("Result")


@dataclass(slots=True)
class Answers:
    """Counts the answers in a stream of frames: a message travels in one frame of data, or more."""

    _pending: bytes = b""

    def count(self, content: bytes) -> int:
        """How many frames of data begin in what comes next."""
        pending, found = self._pending + content, 0
        while len(pending) >= FRAME_HEADER_BYTES:
            length, kind = int.from_bytes(pending[:3], "big"), pending[3]
            if len(pending) < FRAME_HEADER_BYTES + length:
                break
            found += kind == DATA
            pending = pending[FRAME_HEADER_BYTES + length :]
        self._pending = pending
        return found


class Relay:
    """One server, at a port; any number of callers."""

    def __init__(self, port: int) -> None:
        self._port = port
        # Connections that were open when this was raised say nothing any more.
        self._silences = 0
        self.withheld = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._connect, HOST))
        own_port: int = self._server.sockets[0].getsockname()[1]
        self.address = f"{HOST}:{own_port}"

    def withhold(self) -> None:
        """From now on no answer comes through to whoever is connected; `withheld` counts them."""

        async def silence() -> None:
            self._silences += 1
            self.withheld = 0

        self._run(silence())

    def close(self) -> None:
        """Hang up on everybody."""

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
        since, answers = self._silences, Answers()
        with suppress(ConnectionError):
            while content := await server.read(READ_BYTES):
                count = answers.count(content)
                if self._silences > since:
                    self.withheld += count
                    continue
                back.write(content)
                await back.drain()
