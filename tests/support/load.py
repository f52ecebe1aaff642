"""Load of a topic: records that are sent at a rate, which a test changes. Called by the tests of the autoscaler, on a laptop and in pods."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Load:
    """Sends records within its block: `send` is called with 0, 1, 2 and so on, in a thread."""

    def __init__(self, send: Callable[[int], object], per_second: float) -> None:
        self.per_second = per_second
        self.sent = 0
        self._send = send
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more; returns once the last record is sent."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(1 / self.per_second):
            self._send(self.sent)
            self.sent += 1
