"""The guide says what the program says: its flags, events and commands; and its session is one that was held."""

import json
import re
from pathlib import Path

import pytest

from rota_sidecar.config import parse
from rota_sidecar.core.member import states
from rota_sidecar.json_member.commands import READERS
from tests.support.coordinator import serving
from tests.support.sidecar import Sidecar, running
from tests.support.tree import REPO

GUIDE = (REPO / "docs/guide/sidecar.md").read_text()
SOURCE = (REPO / "sidecar/src/rota_sidecar/json_member/mode.py").read_text()
# A switch that is off, and a text that is empty, have nothing to show.
NOTHING = {"", "False", "None"}


def section(heading: str) -> str:
    return GUIDE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without their backticks."""
    lines = [line for line in section(heading).splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_flags_and_defaults_are_those_of_the_program(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit):
        parse(["--help"])
    options = capsys.readouterr().out.split("\noptions:\n")[1]
    pattern = r"^  --([\w-]+),? .*?\(default: ([^()]*)\)$"
    real = dict(re.findall(pattern, re.sub(r"\n {8,}", " ", options), re.MULTILINE))
    told = {flag.removeprefix("--"): default for flag, default, _ in rows("Flags")}
    assert len(real) > 20
    assert told == {flag: "" if default in NOTHING else default for flag, default in real.items()}


def test_every_event_and_every_state_is_told() -> None:
    written = set(re.findall(r'"event": "(\w+)"', SOURCE))
    assert len(written) == 13
    assert {event for event, _, _ in rows("Events")} == written
    told = re.findall(r"`(\w+)`", next(line for line in GUIDE.splitlines() if line.startswith("| `state`")))
    assert {each.__name__ for each in states.State.__args__} == set(told[2:])


def test_every_command_is_told() -> None:
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
                told = json.loads(content)
                assert told.items() <= sidecar.wait(told["event"]).items()
            assert sidecar.wait_for_exit() == 0
