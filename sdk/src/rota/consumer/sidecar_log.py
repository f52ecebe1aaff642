"""
Translate lines of a sidecar's standard error into log entries of this process.

`sidecar_process.py` reads the lines one by one and logs each entry on `rota.sidecar`, with its level. A sidecar writes
JSON, one object per line, or text with `--log-format=text`; an interpreter that fails to start writes free text.
"""

import json
import logging
from typing import NamedTuple

PREFIX = "rota-sidecar: "
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class Entry(NamedTuple):
    """A log entry: a level of `logging`, and the message, which ends with the traceback if there is one."""

    level: int
    message: str


def entry_of(line: str) -> Entry:
    """Parse one line. A line in neither of the sidecar's formats is a warning, so that it is shown."""
    if line.startswith("{"):
        return _json_entry(line)
    if not line.startswith(PREFIX):
        return Entry(logging.WARNING, line)
    message = line.removeprefix(PREFIX)
    name, colon, rest = message.partition(": ")
    return Entry(LEVELS[name], rest) if colon and name in LEVELS else Entry(logging.INFO, message)


def _json_entry(line: str) -> Entry:
    try:
        fields = json.loads(line)
        message = str(fields["message"])
        level = LEVELS.get(fields["level"], logging.ERROR)
    except (ValueError, KeyError, TypeError):
        return Entry(logging.WARNING, line)
    traceback = fields.get("traceback")
    return Entry(level, f"{message}\n{traceback}" if traceback else message)
