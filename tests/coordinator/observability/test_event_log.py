"""What is written down: one line for each event, that a machine can read, and never what is nobody's business."""

import asyncio
import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from rota_coordinator.core.group.effects import Cause, RoundOpened, RoundSettled
from rota_coordinator.observability.event_log import (
    ROUND_LINES_PER_SECOND,
    Journal,
    JsonLines,
    RoundLog,
    set_up,
)
from tests.conformance.driver import DEFAULT
from tests.conformance.members import Member, form, subscription
from tests.conformance.server import ServerDriver
from tests.support.coordinator import QUICK, Coordinator


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """Setting up logs is a matter of the whole process: the tests' own are put back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


class Terminal(io.StringIO):
    """A stream that says it is one."""

    @override
    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_an_object_with_its_facts() -> None:
    stream = io.StringIO()
    set_up("json", stream).tell("stable", "group é: stable", group="é", members=3)
    (line,) = lines(stream)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "event": "stable",
        "message": "group é: stable",
        "group": "é",
        "members": 3,
    }


def test_a_line_stays_a_line_whatever_a_group_is_called() -> None:
    name = "a\nrota-coordinator: all is well\x1b[2J"
    for form_, read in (("json", lines), ("text", lambda stream: stream.getvalue().splitlines())):
        stream = io.StringIO()
        set_up(form_, stream).tell("stable", f"group {name}", group=name)
        assert len(read(stream)) == 1
        assert "\x1b" not in stream.getvalue()


def test_people_get_text_and_machines_json() -> None:
    for stream, expected in ((Terminal(), "rota-coordinator: hello\n"), (io.StringIO(), "{")):
        set_up("auto", stream).tell("greeting", "hello")
        assert stream.getvalue().startswith(expected)


def test_what_libraries_complain_of_is_a_line_too() -> None:
    stream = io.StringIO()
    set_up("json", stream)
    try:
        raise ArithmeticError("lost")
    except ArithmeticError:
        logging.getLogger("asyncio").exception("Task exception was never retrieved")
    (line,) = lines(stream)
    assert (line["event"], line["level"]) == ("asyncio", "error")
    assert "ArithmeticError: lost" in line["traceback"]


def test_a_warning_says_what_is_wrong() -> None:
    stream = io.StringIO()
    set_up("json", stream).warn("slot 3: the disk is full")
    assert [(line["level"], line["message"]) for line in lines(stream)] == [
        ("warning", "slot 3: the disk is full")
    ]


def round_log(stream: io.StringIO) -> "tuple[RoundLog, list[float]]":
    """A log of rounds, and its clock."""
    clock = [0.0]
    logger = logging.getLogger("test.rounds")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logger.handlers[:] = [handler]
    return RoundLog(Journal(logger), lambda: clock[0]), clock


def test_a_rebalance_is_written_down_with_its_reason_and_its_end() -> None:
    stream = io.StringIO()
    log, _ = round_log(stream)
    log.round_changed(RoundOpened("g", 3, Cause.LEFT))
    log.round_changed(RoundSettled("g", 4, members=2, unsettled_ms=15))
    log.round_changed(RoundSettled("g", 5, members=0, unsettled_ms=0))
    began, stable, empty = lines(stream)
    assert (began["event"], began["group"], began["generation"]) == ("rebalance", "g", 3)
    assert began["reason"] == "member_left"
    assert (stable["event"], stable["generation"], stable["members"]) == ("stable", 4, 2)
    assert stable["message"] == "group g, generation 4: stable with 2 members after 15 ms"
    assert empty["event"] == "empty"


def test_a_storm_of_rebalances_fills_no_disk_and_is_said() -> None:
    stream = io.StringIO()
    log, clock = round_log(stream)
    for number in range(10_000):
        log.round_changed(RoundOpened(f"g-{number}", 1, Cause.SILENT))
    assert len(lines(stream)) == ROUND_LINES_PER_SECOND
    clock[0] = 1.0
    log.round_changed(RoundOpened("g", 1, Cause.SILENT))
    omitted, last = lines(stream)[ROUND_LINES_PER_SECOND:]
    assert (omitted["event"], omitted["lines"]) == ("omitted", 10_000 - ROUND_LINES_PER_SECOND)
    assert last["group"] == "g"


@pytest.mark.process
def test_a_run_of_the_coordinator_is_told_in_events_and_without_metadata(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, (*QUICK, "--log-format=json"))
    coordinator.start()

    async def work() -> None:
        driver = ServerDriver(coordinator.address, DEFAULT)
        await form(Member(driver, "g", protocols={"range": subscription(user_data=b"hush-hush")}))
        await driver.close()

    asyncio.run(work())
    coordinator.stop()
    text = coordinator.log.read_text()
    events = [json.loads(line) for line in text.splitlines()]
    assert [event["event"] for event in events] == [
        "http",
        "listening",
        "rebalance",
        "stable",
        "stopping",
        "stopped",
    ]
    assert "hush-hush" not in text


def test_the_standard_stream_is_the_one_for_errors(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("text", sys.stderr).tell("x", "said")
    assert capsys.readouterr() == ("", "rota-coordinator: said\n")
