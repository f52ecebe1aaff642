"""The guide says what the program says: flags, their defaults, reasons of rebalances."""

import re

import pytest

from rota_coordinator.core.group.effects import Cause
from rota_coordinator.core.log.config import DELETE_RETENTION_MS, LogConfig
from rota_coordinator.core.slots.table import SLOTS
from rota_coordinator.options import GROUP_FLAGS, parse
from tests.support.tree import REPO

GUIDE = (REPO / "docs/guide/coordinator.md").read_text()
# A switch that is off, a text that is empty, and what depends on another flag have nothing to show.
NOTHING = {"", "False", "None"}


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without their backticks."""
    section = GUIDE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_flags_and_defaults_are_those_of_the_program(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit):
        parse(["--help"])
    options = capsys.readouterr().out.split("\noptions:\n")[1]
    real = dict(
        re.findall(
            r"^  --([\w-]+),? .*?\(default: ([^()]*)\)$", re.sub(r"\n {8,}", " ", options), re.MULTILINE
        )
    )
    documented = {flag.removeprefix("--"): default for flag, default, _ in rows("Flags")}
    assert len(real) > 15
    assert documented == {
        flag: "" if default in NOTHING else default for flag, default in real.items() if flag != "insecure"
    } | {"insecure": "off"}


def test_settings_of_kafkas_brokers_are_flags_with_the_defaults_that_are_shown() -> None:
    options = vars(parse([]))
    by_flag = {flag: name for name, (flag, _) in GROUP_FLAGS.items()}
    shown = rows("Settings of Kafka's brokers")
    flags = {here.removeprefix("--"): ours for _, here, _, ours, _ in shown if here.startswith("--")}
    assert len(flags) > 9
    # Of a new store: the flag has no default, because an existing store has its number.
    assert flags.pop("slots") == str(SLOTS)
    assert flags == {flag: str(options[by_flag.get(flag, flag.replace("-", "_"))]) for flag in flags}
    others = {kafka: ours for kafka, here, _, ours, _ in shown if not here.startswith("--")}
    assert others == {
        "log.cleaner.min.cleanable.ratio": str(LogConfig().min_cleanable_dirty_ratio),
        "log.cleaner.delete.retention.ms": str(DELETE_RETENTION_MS),
    }


@pytest.mark.parametrize("cause", list(Cause))
def test_every_reason_of_a_rebalance_is_named(cause: Cause) -> None:
    assert f"`{cause.value}`" in GUIDE
