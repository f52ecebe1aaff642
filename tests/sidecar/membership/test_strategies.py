"""Strategies are found by name, also those that other distributions bring; what is wrong with one is a sentence."""

from pathlib import Path

import pytest

from rota_sidecar.core.assignors.load_aware import LoadAwareSticky
from rota_sidecar.core.assignors.model import Group, Subscriber, Topic
from rota_sidecar.membership.strategies import StrategyError, known, strategy

FIRST = """
class First:
    name = "first"
    cooperative = False

    def assign(self, group):
        first = min(group.members)
        return {name: {t: range(group.topics[t].partitions) for t in each.topics if name == first}
                for name, each in group.members.items()}


class Nameless:
    cooperative = False
    assign = First.assign


class Undecided(First):
    name = "undecided"
    cooperative = "perhaps"


class Idle:
    name = "idle"
    cooperative = True


class Choosy(First):
    def __init__(self, settings):
        self.settings = settings
"""


def install(path: Path, module: str, *entries: str) -> None:
    """Create the files that pip installs."""
    info = path / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rota.assignors]\n" + "\n".join(entries) + "\n")
    (path / f"{module}.py").write_text(FIRST)


def test_ours_are_there() -> None:
    found = strategy("load-aware-sticky", 7)
    assert isinstance(found, LoadAwareSticky)
    names = ["cooperative-sticky", "load-aware-sticky", "range", "roundrobin", "sticky"]
    assert sorted(known(100)) == names


def test_a_distribution_brings_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "assignor_of_one", "first = assignor_of_one:First")
    monkeypatch.syspath_prepend(str(tmp_path))
    group = Group({"b": Subscriber(["t"]), "a": Subscriber(["t"])}, {"t": Topic(2)})
    for found in (strategy("first", 100), known(100)["first"]):
        assert found.name == "first"
        assert found.assign(group) == {"b": {}, "a": {"t": range(2)}}


def test_there_is_none_of_that_name() -> None:
    with pytest.raises(
        StrategyError, match=r'unknown strategy "best"; expected one of cooperative-sticky, load-aware'
    ):
        strategy("best", 100)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("first", "Missing", r"cannot be created: AttributeError: .*; correct it or uninstall"),
        ("first", "Choosy", r"cannot be created: TypeError: .*'settings'"),
        ("nameless", "Nameless", "its attribute `name` must be 'nameless'"),
        ("second", "First", "its attribute `name` must be 'second'"),
        ("undecided", "Undecided", "must be True or False"),
        ("idle", "Idle", r"no method `assign\(group\)`"),
        ("range", "First", "has the name of a built-in strategy"),
    ],
)
def test_one_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    install(tmp_path, "assignor_of_two", f"{name} = assignor_of_two:{value}")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(StrategyError, match=rf"the strategy {name} \(assignor_of_two:{value}\).*{message}"):
        known(100)


def test_a_module_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "assignor_of_three", "lost = assignor_of_nobody:First")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(StrategyError, match="ModuleNotFoundError"):
        strategy("lost", 100)


def test_two_of_one_name_are_one_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "x", "assignor_of_four", "first = assignor_of_four:First")
    install(tmp_path / "y", "assignor_of_five", "first = assignor_of_five:First")
    for folder in ("x", "y"):
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    with pytest.raises(StrategyError, match=r"two distributions offer a strategy first .*: uninstall one"):
        known(100)
