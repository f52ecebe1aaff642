"""What the sidecar writes on standard error: one line for each event, whatever stands in it."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from rota_sidecar.observability.event_log import set_up


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_machines_get_an_object_for_each_event() -> None:
    stream = io.StringIO()
    journal = set_up("auto", stream)
    journal.tell("stopped", "the member has stopped: SIGTERM")
    journal.warn("nobody\nthere")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["level"], first["event"], first["message"]) == (
        "info",
        "stopped",
        "the member has stopped: SIGTERM",
    )
    assert (second["level"], second["event"], second["message"]) == ("warning", "problem", "nobody\nthere")
    assert first["time"].endswith("+00:00")


def test_people_get_a_sentence_that_stays_in_its_line() -> None:
    stream = io.StringIO()
    journal = set_up("text", stream)
    journal.tell("joined", "is in the group")
    journal.warn("nobody\nthere\x1b[2J")
    assert stream.getvalue().splitlines() == [
        "rota-sidecar: is in the group",
        "rota-sidecar: warning: nobody\\x0athere\\x1b[2J",
    ]


def test_what_libraries_complain_of_is_written_down_too() -> None:
    stream = io.StringIO()
    set_up("json", stream)
    try:
        raise ValueError("odd")
    except ValueError:
        logging.getLogger("asyncio").exception("a task broke")
    line = json.loads(stream.getvalue())
    assert (line["event"], line["message"]) == ("asyncio", "a task broke")
    assert line["traceback"].endswith("ValueError: odd")
