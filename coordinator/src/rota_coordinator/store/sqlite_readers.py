"""
Read access to the embedded store while it is written: a few read-only connections, each used in a thread.

They never checkpoint. Every read is short, because the WAL cannot restart while a reader uses it.
"""

import asyncio
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from rota_coordinator.store.port import StoreError
from rota_coordinator.store.sqlite_schema import connect_reader

Result = TypeVar("Result")
CONNECTIONS = 4
# Timeout of a read. Reads take milliseconds; one that takes this long hangs on its disk.
READ_S = 30.0


class Readers:
    """A bounded pool of read-only connections, opened on demand. Invariant: one read at a time per connection."""

    def __init__(self, path: Path, vfs: str) -> None:
        self._path = path
        self._vfs = vfs
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="sqlite-reader")
        self._idle: queue.LifoQueue[apsw.Connection | None] = queue.LifoQueue()
        for _ in range(CONNECTIONS):
            self._idle.put(None)

    async def read(self, work: Callable[[apsw.Connection], Result]) -> Result:
        """Run one or a few short statements in a thread, and return the result."""
        try:
            done = self._threads.submit(self._read, work)
        except RuntimeError:
            raise StoreError(f"{self._path} is closed") from None
        return await asyncio.wrap_future(done)

    def _read(self, work: Callable[[apsw.Connection], Result]) -> Result:
        connection = self._take()
        try:
            connection = connection or connect_reader(self._path, self._vfs)
            return work(connection)
        except apsw.Error as broken:
            if connection is not None:
                connection.close(force=True)
                connection = None
            raise StoreError(f"{self._path} could not be read ({broken}); check the disk") from broken
        finally:
            self._idle.put(connection)

    def _take(self) -> apsw.Connection | None:
        try:
            return self._idle.get(timeout=READ_S)
        except queue.Empty:
            raise StoreError(
                f"{self._path} could not be read within {READ_S:.0f} s; check the disk"
            ) from None

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Close all connections for the duration of the block; reads wait until its end."""
        taken = 0
        try:
            while taken < CONNECTIONS:
                connection = self._take()
                taken += 1
                if connection is not None:
                    connection.close(force=True)
            yield
        finally:
            for _ in range(taken):
                self._idle.put(None)

    def close(self) -> None:
        """Reject new reads, and wait for the running ones."""
        self._threads.shutdown()
        with self.exclusive():
            pass
