"""Notice the end of standard input, with which a parent process ends its sidecar. Used by `process.sidecar`."""

import asyncio
import os
import threading
from contextlib import suppress

CHUNK_BYTES = 64 << 10


class EndOfInput:
    """Waits for the end of a file; its content is discarded. Invariant: `wait` is called once."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()

    async def wait(self) -> None:
        """Return when the file has ended."""
        threading.Thread(target=self._run, name="end-of-input", daemon=True).start()
        await self._ended.wait()

    def _run(self) -> None:
        with suppress(OSError):  # closed from the start
            while os.read(self._file, CHUNK_BYTES):
                pass
        with suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self._ended.set)
