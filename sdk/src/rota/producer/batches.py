"""
Batches of records that wait to be sent, and their outcomes.

`accumulator.py` fills batches, the sender empties and completes them, futures refer to them. A record is four entries in the
columns of its batch and nothing else, so that a million records need little memory.
"""

import threading
from collections.abc import Callable

from typing_extensions import override

from rota import errors
from rota.records import Headers

# Approximate overhead of a record beside its key and value, in a payload and in the buffer.
RECORD_BYTES = 12
NO_OFFSET = -1

# One lock for all outcomes: it is held for a few statements, and there may be millions of outcomes.
_CHANGING = threading.Lock()


class Outcome:
    """Outcome of records that are sent together. Invariant: `done` is set once, by the first `complete`."""

    __slots__ = (
        "_callbacks",
        "_event",
        "base_offset",
        "done",
        "error",
        "partition",
        "timestamps_ms",
        "topic",
    )

    def __init__(self, topic: str, partition: int, timestamps_ms: list[int]) -> None:
        self.topic = topic
        self.partition = partition
        self.timestamps_ms = timestamps_ms
        self.base_offset = NO_OFFSET
        self.error: errors.RotaError | None = None
        self.done = False
        self._callbacks: list[Callable[[Outcome], None]] | None = None
        self._event: threading.Event | None = None

    def complete(self, base_offset: int, error: errors.RotaError | None = None) -> None:
        """Complete with the base offset, -1 if it is unknown, or with an error; further calls change nothing."""
        with _CHANGING:
            if self.done:
                return
            self.base_offset = base_offset
            self.error = error
            self.done = True
        # From here on no callback is added.
        if self._event is not None:
            self._event.set()
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback(self)

    def when_done(self, callback: Callable[["Outcome"], None]) -> None:
        """Call back once the outcome is known: at once if it is; else in the thread that completes it."""
        with _CHANGING:
            if not self.done:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                return
        callback(self)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the outcome is known, at most `timeout_s` seconds; return whether it is."""
        with _CHANGING:
            if self.done:
                return True
            if self._event is None:
                self._event = threading.Event()
            event = self._event
        return event.wait(timeout_s)


class Batch(Outcome):
    """Consecutive records of one partition. Invariant: records are added under the accumulator's lock only."""

    __slots__ = ("created_s", "headers", "keys", "size", "values")

    def __init__(self, topic: str, partition: int, created_s: float) -> None:
        super().__init__(topic, partition, [])
        self.created_s = created_s
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        # By index, of the few records that have headers.
        self.headers: dict[int, Headers] = {}
        self.size = 0

    def header_column(self) -> list[Headers] | None:
        """Return the headers of all records; None if no record has any."""
        if not self.headers:
            return None
        return [self.headers.get(index, ()) for index in range(len(self.values))]

    @override
    def complete(self, base_offset: int, error: errors.RotaError | None = None) -> None:
        super().complete(base_offset, error)
        # The application may keep a future for long, and it needs its timestamp only.
        self.values, self.keys, self.headers = [], [], {}
