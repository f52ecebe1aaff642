"""
Records that wait to be sent, in batches, and what becomes of each batch.

`accumulator.py` fills batches, the sender empties and completes them, futures look at them. A record is four entries
in the columns of its batch and nothing else, so a million of them cost little.
"""

import threading
from collections.abc import Callable

from rota import errors
from rota.records import Headers

# What a record takes beside its key and value, about, in a payload and in the buffer.
RECORD_BYTES = 12
NO_OFFSET = -1


class Batch:
    """Consecutive records of one partition. Who holds the accumulator's lock may add to it."""

    __slots__ = (
        "_callbacks",
        "_event",
        "_lock",
        "base_offset",
        "created_s",
        "done",
        "error",
        "headers",
        "keys",
        "partition",
        "size",
        "times",
        "topic",
        "values",
    )

    def __init__(self, topic: str, partition: int, created_s: float) -> None:
        self.topic = topic
        self.partition = partition
        self.created_s = created_s
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.times: list[int] = []
        # Of the few records that have some, by index.
        self.headers: dict[int, Headers] = {}
        self.size = 0
        self.base_offset = NO_OFFSET
        self.error: errors.RotaError | None = None
        self.done = False
        self._callbacks: list[Callable[[Batch], None]] = []
        self._event: threading.Event | None = None
        self._lock = threading.Lock()

    def header_column(self) -> list[Headers] | None:
        """The headers of all records; None when no record has any."""
        if not self.headers:
            return None
        return [self.headers.get(index, ()) for index in range(len(self.values))]

    def complete(self, base_offset: int, error: errors.RotaError | None = None) -> None:
        """Its records lie from that offset on, or nobody knows where; or they are not sent. Only the first word counts."""
        with self._lock:
            if self.done:
                return
            self.base_offset = base_offset
            self.error = error
            self.done = True
            callbacks, self._callbacks = self._callbacks, []
            event = self._event
        # A future may be kept for long, and needs its timestamp only.
        self.values, self.keys, self.headers = [], [], {}
        if event is not None:
            event.set()
        for callback in callbacks:
            callback(self)

    def when_done(self, callback: Callable[["Batch"], None]) -> None:
        """Call back once it is complete: at once if it is; else in the thread that completes it."""
        with self._lock:
            if not self.done:
                self._callbacks.append(callback)
                return
        callback(self)

    def wait(self, timeout_s: float | None) -> bool:
        """Whether it is complete, after that long at most."""
        with self._lock:
            if self.done:
                return True
            if self._event is None:
                self._event = threading.Event()
            event = self._event
        return event.wait(timeout_s)
