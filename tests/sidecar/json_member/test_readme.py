"""The JSON member's README lists every event and command, and its session runs as it is written."""

import json
import re
from pathlib import Path

import pytest

from rota_sidecar.core.member import states
from tests.support.coordinator import serving
from tests.support.json_member.commands import READERS
from tests.support.sidecar import Sidecar, running
from tests.support.tree import REPO

FOLDER = REPO / "tests/support/json_member"
GUIDE = (FOLDER / "README.md").read_text()
SOURCE = (FOLDER / "translation.py").read_text()


def section(heading: str) -> str:
    return GUIDE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without their backticks."""
    lines = [line for line in section(heading).splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_every_event_and_every_state_is_listed() -> None:
    written = set(re.findall(r'"event": "(\w+)"', SOURCE))
    assert len(written) == 15
    assert {event for event, _, _ in rows("Events")} == written
    listed = re.findall(r"`(\w+)`", next(line for line in GUIDE.splitlines() if line.startswith("| `state`")))
    assert {each.__name__ for each in states.State.__args__} == set(listed[2:])


def test_every_command_is_listed() -> None:
    assert {command for command, _, _ in rows("Commands")} == READERS.keys()


@pytest.mark.process
def test_the_session_was_held(tmp_path: Path) -> None:
    lines = section("A session").split("```\n")[1].splitlines()
    with serving(tmp_path) as coordinator:
        coordinator.make_topic("events", 2)
        sidecar = Sidecar(tmp_path, f"rota://{coordinator.address}", "orders")
        with running(sidecar):
            for line in lines:
                direction, _, content = line.partition(" ")
                if direction == ">":
                    sidecar.say(content)
                    continue
                listed = json.loads(content)
                assert listed.items() <= sidecar.wait(listed["event"]).items()
            assert sidecar.wait_for_exit() == 0
