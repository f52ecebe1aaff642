"""The event log on standard error: one line per event, for machines and for people, whatever its message contains."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import grpc.aio
import pytest
from typing_extensions import override

from rota_service.event_log import open_event_log


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    """Restore the process-wide handlers, which an event log replaces."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    @override
    def isatty(self) -> bool:
        return True


def objects(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_json_line_has_time_level_event_message_and_fields() -> None:
    stream = io.StringIO()
    event_log = open_event_log("rota-part", "json", stream)
    event_log.info("stable", "group é: stable", group="é", members=3)
    event_log.warning("slot 3: the disk is full\nagain")
    event_log.warning("rejected a sidecar", "fleet_rejection", suppressed=2)
    stable, warning, rejection = objects(stream)
    assert stable.pop("time").endswith("+00:00")
    assert stable == {
        "level": "info",
        "event": "stable",
        "message": "group é: stable",
        "group": "é",
        "members": 3,
    }
    assert (warning["level"], warning["event"]) == ("warning", "warning")
    assert warning["message"] == "slot 3: the disk is full\nagain"
    assert (rejection["level"], rejection["event"], rejection["suppressed"]) == (
        "warning",
        "fleet_rejection",
        2,
    )


def test_text_names_the_program_and_levels_from_a_warning_on_and_stays_in_its_line() -> None:
    stream = io.StringIO()
    event_log = open_event_log("rota-part", "text", stream)
    event_log.info("joined", "joined the group")
    event_log.warning("no route\nto broker\x1b[2J")
    assert stream.getvalue().splitlines() == [
        "rota-part: joined the group",
        "rota-part: warning: no route\\x0ato broker\\x1b[2J",
    ]


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_name_does_not_break_out_of_its_line(log_format: str) -> None:
    stream = io.StringIO()
    name = "a\nrota-part: all is well\x1b[2J"
    open_event_log("rota-part", log_format, stream).info("stable", f"group {name}", group=name)
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


def test_auto_is_text_on_a_terminal_and_json_elsewhere() -> None:
    for stream, expected in ((Terminal(), "rota-part: hello\n"), (io.StringIO(), "{")):
        open_event_log("rota-part", "auto", stream).info("greeting", "hello")
        assert stream.getvalue().startswith(expected)


def test_an_unexpected_error_is_logged_with_its_traceback() -> None:
    stream = io.StringIO()
    event_log = open_event_log("rota-part", "json", stream)
    try:
        raise ArithmeticError("lost")
    except ArithmeticError as error:
        event_log.exception(error)
    (line,) = objects(stream)
    assert (line["level"], line["event"]) == ("error", "fault")
    assert line["traceback"].endswith("ArithmeticError: lost")


def test_errors_of_libraries_are_logged_under_their_name() -> None:
    stream = io.StringIO()
    open_event_log("rota-part", "json", stream)
    try:
        raise ArithmeticError("lost")
    except ArithmeticError:
        logging.getLogger("asyncio").exception("Task exception was never retrieved")
    (line,) = objects(stream)
    assert (line["event"], line["level"]) == ("asyncio", "error")
    assert "ArithmeticError: lost" in line["traceback"]


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [
        (grpc.aio.InternalError('Failed "execute_batch": (<SendStatusFromServerOperation>,)'), False),
        (
            grpc.aio.InternalError("Failed grpc_call_start_batch: 8 with grpc_call_error value: 'TOO_MANY'"),
            True,
        ),
        (ArithmeticError('Failed "execute_batch"'), True),
    ],
)
def test_a_client_that_is_gone_as_grpc_refuses_it_is_no_error(error: Exception, is_logged: bool) -> None:
    stream = io.StringIO()
    open_event_log("rota-part", "text", stream)
    logging.getLogger("grpc._cython.cygrpc").error("raised in core", exc_info=error)
    assert bool(stream.getvalue()) is is_logged


def test_the_stream_is_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    open_event_log("rota-part", "text", sys.stderr).info("x", "said")
    assert capsys.readouterr() == ("", "rota-part: said\n")
