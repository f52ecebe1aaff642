"""The guide lists the flags of the program, with their defaults."""

import re

import pytest

from rota_sidecar.config import parse
from tests.support.tree import REPO

GUIDE = (REPO / "docs/guide/sidecar.md").read_text()
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
