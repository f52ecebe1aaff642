"""
What the coordinator writes down, on standard error: one line for each event, as JSON for machines, as text for people.

No line carries what members say of themselves, beyond their ids: not their metadata, and no secret.
"""

import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TextIO

from google.protobuf.message import Message
from typing_extensions import override

from rota_coordinator.core.group.effects import Round, RoundOpened
from rota_coordinator.runtime.observer import Error, Observer

LOGGER = "rota_coordinator"
# When every group rebalances at once, thousands of lines would only slow that down.
ROUND_LINES_PER_SECOND = 50
# As text a name must not break out of its line, nor move the cursor.
CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127)}


class JsonLines(logging.Formatter):
    """One object for each line."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", record.name),
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class TextLines(logging.Formatter):
    """A sentence for each line; a traceback follows it."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        line = f"rota-coordinator: {record.getMessage().translate(CONTROL)}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class Journal:
    """Events with their facts."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def tell(self, event: str, sentence: str, **facts: str | float) -> None:
        """Something happened as it should."""
        self._logger.info(sentence, extra={"event": event, "facts": facts})

    def warn(self, sentence: str) -> None:
        """Something happened that somebody should know of."""
        self._logger.warning(sentence, extra={"event": "warning"})

    def broke(self, error: Exception) -> None:
        """Something happened that nobody thought of: with all that helps to find it."""
        self._logger.error("a fault in Rota; please report it", exc_info=error, extra={"event": "fault"})


def set_up(log_format: str, stream: TextIO = sys.stderr) -> Journal:
    """Everything that is logged in this process goes to the stream, libraries' complaints too."""
    as_json = log_format == "json" or (log_format == "auto" and not stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if as_json else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logger = logging.getLogger(LOGGER)
    logger.setLevel(logging.INFO)
    return Journal(logger)


class RoundLog(Observer):
    """Writes down when groups begin to rebalance, and when they are through."""

    def __init__(self, journal: Journal, clock: Callable[[], float]) -> None:
        self._journal = journal
        self._clock = clock
        self._second = 0
        self._lines = 0

    @override
    def answered(self, request: Message, error: Error, seconds: float) -> None:
        """Too many to be written down; they are counted."""

    @override
    def appended(self, seconds: float) -> None:
        """As above."""

    @override
    def lagged(self, seconds: float) -> None:
        """As above."""

    @override
    def round_changed(self, change: Round) -> None:
        if not self._has_room():
            return
        facts: dict[str, str | int] = {"group": change.group_id, "generation": change.generation}
        where = f"group {change.group_id}, generation {change.generation}"
        if isinstance(change, RoundOpened):
            reason = change.cause.value
            self._journal.tell("rebalance", f"{where}: rebalances ({reason})", **facts, reason=reason)
            return
        facts |= {"members": change.members, "unsettled_ms": change.unsettled_ms}
        event = "stable" if change.members else "empty"
        sentence = f"{where}: {event} with {change.members} members after {change.unsettled_ms} ms"
        self._journal.tell(event, sentence, **facts)

    def _has_room(self) -> bool:
        """Whether another line fits into this second; what did not is said with the first one of a later second."""
        second = int(self._clock())
        if second != self._second:
            missing = self._lines - ROUND_LINES_PER_SECOND
            self._second, self._lines = second, 0
            if missing > 0:
                self._journal.tell(
                    "omitted", f"{missing} lines about rebalances were left out", lines=missing
                )
        self._lines += 1
        return self._lines <= ROUND_LINES_PER_SECOND
