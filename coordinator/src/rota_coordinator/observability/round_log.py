"""

Log the start and the end of each rebalance; the coordinator's Observers call it after a group's state has changed.
Of what members send, lines contain their ids only: no metadata, no reasons and no secrets.
"""

from collections.abc import Callable

from google.protobuf.message import Message
from typing_extensions import override

from rota_coordinator.core.group.effects import Round, RoundOpened
from rota_coordinator.runtime.observer import Error, Observer
from rota_service.event_log import EventLog

# When all groups rebalance at once, thousands of lines would slow the rebalances down.
ROUND_LINES_PER_SECOND = 50


class RoundLog(Observer):
    """
    Logs rebalances. Invariant: at most ROUND_LINES_PER_SECOND lines a second; omitted lines are counted and reported.
    """

    def __init__(self, event_log: EventLog, clock: Callable[[], float]) -> None:
        self._event_log = event_log
        self._clock = clock
        self._second = 0
        self._lines = 0

    @override
    def answered(self, request: Message, error: Error, seconds: float) -> None:
        """Ignore requests: they are counted by the metrics."""

    @override
    def appended(self, seconds: float) -> None:
        """Ignore the event: it is measured by the metrics."""

    @override
    def lagged(self, seconds: float) -> None:
        """Ignore the event: it is measured by the metrics."""

    @override
    def round_changed(self, change: Round) -> None:
        if not self._has_room():
            return
        fields: dict[str, str | int] = {"group": change.group_id, "generation": change.generation}
        where = f"group {change.group_id}, generation {change.generation}"
        if isinstance(change, RoundOpened):
            reason = change.cause.value
            self._event_log.info("rebalance", f"{where}: rebalances ({reason})", **fields, reason=reason)
            return
        fields |= {"members": change.members, "unsettled_ms": change.unsettled_ms}
        event = "stable" if change.members else "empty"
        message = f"{where}: {event} with {change.members} members after {change.unsettled_ms} ms"
        self._event_log.info(event, message, **fields)

    def _has_room(self) -> bool:
        """Return whether this second has room for another line; the first line of a later second counts omitted ones."""
        second = int(self._clock())
        if second != self._second:
            missing = self._lines - ROUND_LINES_PER_SECOND
            self._second, self._lines = second, 0
            if missing > 0:
                self._event_log.info(
                    "omitted", f"{missing} lines about rebalances were left out", lines=missing
                )
        self._lines += 1
        return self._lines <= ROUND_LINES_PER_SECOND
