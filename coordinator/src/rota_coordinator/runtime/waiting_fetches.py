"""Fetches that wait for more to read. `fetches` registers them, and `topic_log` wakes them once more is stored."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class WaitingFetches:
    """Invariant: each log id has at least one event."""

    # Log id -> events of the waiting fetches.
    _events: dict[int, set[asyncio.Event]] = field(default_factory=dict)

    def add(self, log_ids: Iterable[int], event: asyncio.Event) -> None:
        """Register an event that is set when one of these logs has more to read, or is deleted."""
        for log_id in log_ids:
            self._events.setdefault(log_id, set()).add(event)

    def remove(self, log_ids: Iterable[int], event: asyncio.Event) -> None:
        """Unregister the event from these logs."""
        for log_id in log_ids:
            waiting = self._events.get(log_id, set())
            waiting.discard(event)
            if not waiting:
                self._events.pop(log_id, None)

    def wake(self, log_ids: Iterable[int]) -> None:
        """Wake the fetches of these logs."""
        for log_id in log_ids:
            for event in self._events.get(log_id, ()):
                event.set()

    def wake_all(self) -> None:
        """Wake all fetches; the log is not served any more."""
        self.wake(self._events)
