"""The page about installing names values, files and objects that exist."""

import re

import pytest
import yaml

from tests.chart.rendered import VALUES, leaves
from tests.support import helm
from tests.support.tree import REPO

pytestmark = pytest.mark.process

PAGE = (REPO / "docs" / "install.md").read_text()
ROOTS = "|".join(VALUES)


def test_every_value_of_the_page_exists() -> None:
    known = {".".join(path) for path, _ in leaves(VALUES)}
    named = set(re.findall(rf"(?<![-.\w])((?:{ROOTS})(?:\.[a-zA-Z]+)+)", re.sub(r"\(.*?\)", "", PAGE)))
    named = {each for each in named if not each.endswith((".yaml", ".crt", ".key", ".db"))}
    assert len(named) > 20
    assert [
        each for each in named if not any(path == each or path.startswith(f"{each}.") for path in known)
    ] == []


def test_every_command_of_the_page_renders() -> None:
    commands = re.findall(r"^helm install rota charts/rota -n rota(.*)$", PAGE, re.MULTILINE)
    assert len(commands) >= 4
    for flags in commands:
        kept = re.sub(r"--(create-namespace|wait)\b|#.*", "", flags).split()
        paths = [str(REPO / each) if each.startswith("charts/") else each for each in kept]
        assert helm.render(*paths)


def test_the_example_of_grants_renders(tmp_path_factory: pytest.TempPathFactory) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (block,) = [each for each in blocks if "grants" in yaml.safe_load(each).get("coordinator", {})]
    file = tmp_path_factory.mktemp("values") / "values.yaml"
    file.write_text(block)
    assert len(yaml.safe_load(block)["coordinator"]["grants"]) == 2
    assert helm.render(f"--values={file}")
