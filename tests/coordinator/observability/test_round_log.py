"""The log of rebalances: begin and end of each, bounded in lines per second, without members' metadata."""

import asyncio
import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from rota_coordinator.core.group.effects import Cause, RoundOpened, RoundSettled
from rota_coordinator.observability.round_log import ROUND_LINES_PER_SECOND, RoundLog
from rota_service.event_log import EventLog, JsonLines
from tests.conformance.driver import DEFAULT
from tests.conformance.members import Member, form, subscription
from tests.conformance.server import ServerDriver
from tests.support.coordinator import QUICK, Coordinator


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def round_log(stream: io.StringIO) -> "tuple[RoundLog, list[float]]":
    """A log of rounds, and its clock."""
    clock = [0.0]
    logger = logging.getLogger("test.rounds")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logger.handlers[:] = [handler]
    return RoundLog(EventLog(logger), lambda: clock[0]), clock


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
def test_a_run_of_the_coordinator_is_logged_as_events_and_without_metadata(tmp_path: Path) -> None:
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
