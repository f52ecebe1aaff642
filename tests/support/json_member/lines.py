"""
Lines in and lines out, for the JSON member: pipes, terminals and files, none of which may hold up a heartbeat.

Each direction has a daemon thread of its own, because the event loop cannot wait for files and an unread pipe must not
keep the process alive.
"""

import asyncio
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import suppress

LINE_BYTES_MAX = 4 << 20
UNREAD_LINES_MAX = 10_000
CHUNK_BYTES = 64 << 10
FLUSH_S = 2


class OutputStalled(Exception):
    """The queue of unwritten lines is full."""


class LineReader:
    """Hands out lines, one after the other: the next is handed over when this one was taken."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = threading.Semaphore()

    def start(self) -> None:
        """Read from now on, until the end of the file."""
        threading.Thread(target=self._run, name="lines-in", daemon=True).start()

    async def next(self) -> bytes | None:
        """The next line; None for one that was too long. After the end of the file it waits for ever."""
        line = await self._lines.get()
        self._room.release()
        return line

    def _run(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: the process ends
            for line in split(self._chunks()):
                self._room.acquire()
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line)

    def _chunks(self) -> Iterator[bytes]:
        with suppress(OSError):  # standard input is closed from the start
            while chunk := os.read(self._file, CHUNK_BYTES):
                yield chunk


def split(chunks: Iterator[bytes], longest: int = LINE_BYTES_MAX) -> Iterator[bytes | None]:
    """The lines that are complete, without their ends; None for each that is longer."""
    rest, is_too_long = b"", False
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield None if is_too_long or len(line) > longest else line
            is_too_long = False
        if len(rest) > longest:
            rest, is_too_long = b"", True


class LineWriter:
    """Writes lines in their order; they are taken at once."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._lines: queue.Queue[bytes | None] = queue.Queue(UNREAD_LINES_MAX)
        self._thread = threading.Thread(target=self._run, name="lines-out", daemon=True)
        # Set when nothing can be written any more.
        self.broken = asyncio.Event()

    def start(self) -> None:
        """Write from now on."""
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Write it after all others. Raises OutputStalled."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            raise OutputStalled(
                f"{UNREAD_LINES_MAX} events wait on standard output and nobody reads them: read them, or send them to a file"
            ) from None

    def close(self) -> None:
        """Give what waits some time to be read."""
        with suppress(queue.Full):
            self._lines.put_nowait(None)
            self._thread.join(FLUSH_S)

    def _run(self) -> None:
        try:
            while (line := self._lines.get()) is not None:
                write_whole(self._file, line + b"\n")
        except OSError:
            with suppress(RuntimeError):  # the loop is closed: the process ends anyway
                self._loop.call_soon_threadsafe(self.broken.set)


def write_whole(file: int, data: bytes) -> None:
    """All of it, also where a pipe takes a part only."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
