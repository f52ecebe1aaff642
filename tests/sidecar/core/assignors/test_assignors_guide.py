"""The strategy of the guide can be installed, is found, and gives plans."""

import re
from pathlib import Path

import pytest

from rota_sidecar.core.assignors.built_in import NAMES
from rota_sidecar.core.assignors.load_aware import HYSTERESIS_PERCENT, IDLE_PERCENT
from rota_sidecar.core.assignors.model import Group, Subscriber, Topic
from rota_sidecar.core.assignors.validation import plan_problem
from rota_sidecar.core.consumer_protocol.user_data import RATES_MAX
from rota_sidecar.membership.strategies import GROUP, strategy
from tests.support.tree import REPO

GUIDE = (REPO / "docs" / "guide" / "assignors.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    assert found
    return found[1]


def install(folder: Path) -> None:
    """As pip would, from what the guide shows."""
    module = re.search(r"^standby = \"(\w+):Standby\"$", block("toml"), re.MULTILINE)
    assert module
    assert f'"{GROUP}"' in block("toml")
    (folder / f"{module[1]}.py").write_text(block("python"))
    info = folder / "standby-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: standby\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nstandby = {module[1]}:Standby\n")


def test_the_strategy_of_the_guide_gives_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    members = {"a": Subscriber(["t"]), "b": Subscriber(["t", "u"]), "c": Subscriber([])}
    group = Group(members, {"t": Topic(2), "u": Topic(1), "v": Topic(1)})
    standby = strategy("standby", 100)
    plan = standby.assign(group)
    assert plan == {"a": {"t": range(2)}, "b": {"u": range(1)}, "c": {}}
    assert plan_problem(group, plan, standby.cooperative) == ""


def test_the_guide_names_every_strategy_and_the_figures_that_count() -> None:
    assert all(f"`{name}`" in GUIDE for name in NAMES)
    assert f"{HYSTERESIS_PERCENT} % of the mean" in GUIDE
    assert "an idle one a hundredth of that" in GUIDE
    assert IDLE_PERCENT == 1
    assert f"rates of {RATES_MAX} partitions at most" in GUIDE
