"""
What the sidecar writes down, on standard error: one line for each event, as JSON for machines, as text for people.

Set up by `program`. No line carries a secret, nor what is in records.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from typing_extensions import override

LOGGER = "rota_sidecar"
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
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class TextLines(logging.Formatter):
    """One sentence per line, with its level from a warning on; a traceback follows it."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        line = f"rota-sidecar: {level}{record.getMessage().translate(CONTROL)}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class Journal:
    """Events in sentences."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def tell(self, event: str, sentence: str) -> None:
        """Something happened as it should."""
        self._logger.info(sentence, extra={"event": event})

    def warn(self, sentence: str) -> None:
        """Something happened that somebody should know of."""
        self._logger.warning(sentence, extra={"event": "problem"})

    def broke(self, error: Exception) -> None:
        """Something happened that nobody expected."""
        self._logger.error("the sidecar broke", exc_info=error, extra={"event": "broke"})


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
