"""Lines of a sidecar's standard error keep their level in the application's own logging."""

import json
import logging
import sys

import pytest

from rota.consumer.sidecar_log import entry_of
from rota_service.event_log import JsonLines, TextLines


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING, logging.ERROR])
@pytest.mark.parametrize("formatter", [JsonLines(), TextLines("rota-sidecar")])
def test_an_entry_keeps_the_level_that_the_sidecar_gave_it(formatter: logging.Formatter, level: int) -> None:
    said = logging.LogRecord("rota_sidecar", level, "", 0, "orders-0: stands still", None, None)
    assert entry_of(formatter.format(said)) == (level, "orders-0: stands still")


def test_a_traceback_stays_with_its_message() -> None:
    try:
        raise ValueError("odd")
    except ValueError:
        said = logging.LogRecord("rota_sidecar", logging.ERROR, "", 0, "it broke", None, sys.exc_info())
    level, message = entry_of(JsonLines().format(said))
    assert level == logging.ERROR
    assert message.startswith("it broke\nTraceback")
    assert message.endswith("ValueError: odd")


@pytest.mark.parametrize("line", ["Fatal Python error: odd", "{", '{"odd": 1}', json.dumps([1]), ""])
def test_a_line_in_neither_format_is_a_warning_as_it_stands(line: str) -> None:
    assert entry_of(line) == (logging.WARNING, line)
