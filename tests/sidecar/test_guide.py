"""The guide lists the flags of the program, with defaults, settings and help."""

import re

import pytest

from rota_sidecar.config.arguments import parse_arguments
from rota_sidecar.config.flags import FLAGS
from tests.support.tree import REPO

GUIDE = (REPO / "docs/guide/sidecar.md").read_text()
# A line of the help: the name, what the flag does, and its default if it has one.
HELP = r"^  --(?!version)([\w-]+)(?:, --no-[\w-]+| \S+)\s+(.*?)(?: \(default: ([^()]*)\))?$"


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
        parse_arguments(["--help"])
    options = re.sub(r"\n {8,}", " ", capsys.readouterr().out.split("\noptions:\n")[1])
    printed = re.findall(HELP, options, re.MULTILINE)
    assert [name for name, _, _ in printed] == [flag.name for flag in FLAGS]
    shown = [(flag.removeprefix("--"), meaning, default) for flag, default, _, meaning in rows("Flags")]
    assert shown == printed


def test_the_guide_shows_which_setting_stands_for_a_flag() -> None:
    paths = {flag.option: "" if flag.setting is None else flag.setting.path for flag in FLAGS}
    assert {flag: setting for flag, _, setting, _ in rows("Flags")} == paths
