"""
The event log of a process on standard error: one line per event, as JSON or as text.

A program opens it once, before it serves, and hands the EventLog to the code that reports; warnings of libraries are written
to the same stream. Callers keep secrets, record contents and members' metadata out of messages.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from typing_extensions import override

# Control characters are escaped in text, so that a name can neither start a new line nor move the cursor.
CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127)}


# gRPC's logger of a call that ended with an error of gRPC itself, and the beginning of the error of a client that is gone. gRPC says
# nothing of it where it has noticed the client's end before.
GRPC_LOGGER, CLIENT_GONE = "grpc._cython.cygrpc", 'Failed "execute_batch"'


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Return False for gRPC's report that it could not send something to a client that is gone: the call has ended with it."""
    if record.name != GRPC_LOGGER or record.exc_info is None:
        return True
    # It is loaded, for it logs; not every program with an event log loads it.
    import grpc.aio

    error = record.exc_info[1]
    return not (isinstance(error, grpc.aio.InternalError) and str(error).startswith(CLIENT_GONE))


class JsonLines(logging.Formatter):
    """Formats an event as a JSON object on one line, with its fields at the top level."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", record.name),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class TextLines(logging.Formatter):
    """Formats an event as one line that begins with the program's name, and its level from a warning on; a traceback follows."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program

    @override
    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        line = f"{self._program}: {level}{record.getMessage().translate(CONTROL)}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class EventLog:
    """Writes named events. Invariant: one call writes one event, whatever characters its message has."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def info(self, event: str, message: str, **fields: str | float) -> None:
        """Log a normal event; JSON lines carry its fields too."""
        self._logger.info(message, extra={"event": event, "fields": fields})

    def warning(self, message: str, event: str = "warning", **fields: str | float) -> None:
        """Log a problem that an operator may have to correct; JSON lines carry its fields too."""
        self._logger.warning(message, extra={"event": event, "fields": fields})

    def exception(self, error: Exception) -> None:
        """Log an unexpected error with its traceback."""
        message = "internal error in Rota; please report it with the traceback below"
        self._logger.error(message, exc_info=error, extra={"event": "fault"})


def open_event_log(program: str, log_format: str, stream: TextIO = sys.stderr) -> EventLog:
    """
    Send all log lines of this process to the stream, warnings of libraries too, and return the program's event log.

    `log_format` is json, text, or auto: text where the stream is a terminal.
    """
    as_json = log_format == "json" or (log_format == "auto" and not stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.addFilter(is_worth_a_line)
    handler.setFormatter(JsonLines() if as_json else TextLines(program))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logger = logging.getLogger(program)
    logger.setLevel(logging.INFO)
    return EventLog(logger)
