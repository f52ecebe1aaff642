"""The ways through the house that docs/architecture.md shows lead to files that exist."""

import re

import pytest

from tests.support.tree import REPO

PAGE = (REPO / "docs" / "architecture.md").read_text()
PACKAGES = {"sidecar": "sidecar/src/rota_sidecar", "coordinator": "coordinator/src/rota_coordinator"}
WAYS = re.findall(r"^\| ([^|]*\?) \| (\w+) \| ([^|]*) \|$", PAGE, re.MULTILINE)
PICTURES = {
    part: PAGE.partition(f"## Inside the {part}\n")[2].split("```")[1] for part in ("coordinator", "sidecar")
}


def test_there_are_five_ways() -> None:
    assert len(WAYS) == 5


@pytest.mark.parametrize(("question", "part", "way"), WAYS)
def test_each_stop_of_a_way_exists(question: str, part: str, way: str) -> None:
    stops = re.findall(r"`([^`]*\.py)`", way)
    missing = [stop for stop in stops if not (REPO / PACKAGES[part] / stop).is_file()]
    assert stops, f"{question}: name the files"
    assert missing == [], f"{question}: correct the way in docs/architecture.md"


@pytest.mark.parametrize("part", PICTURES)
def test_a_picture_shows_every_folder_and_no_other(part: str) -> None:
    root = REPO / PACKAGES[part]
    shown = re.findall(r"^(\w+)/", PICTURES[part], re.MULTILINE)
    there = [each.name for each in root.iterdir() if each.is_dir() and (each / "__init__.py").is_file()]
    assert sorted(shown) == sorted(there)
