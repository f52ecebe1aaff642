"""
The table of conformance: how many cases there are, and how many pass on which coordinator.

Each tier asks another coordinator, in a process of its own; so each puts its row down in a file, and the runner of
the tiers shows all of them when it is done.
"""

import json
import re
import shutil
from collections.abc import Sequence
from typing import NamedTuple

from tests.conformance.driver import CORE, KAFKA, ROTA, SIDECAR_KAFKA, SIDECAR_ROTA
from tests.support.tree import REPO

ROWS = REPO / "build" / "conformance"
DIVERGENCES = REPO / "docs" / "divergences.md"
TITLES = {
    CORE: "Rota's core",
    ROTA: "Rota's server",
    SIDECAR_ROTA: "  by sidecar",
    KAFKA: "Apache Kafka",
    SIDECAR_KAFKA: "  by sidecar",
}
ROW_OF_THE_LIST = re.compile(r"^\| (?!what \|)(.+?) \|", re.MULTILINE)


class Row(NamedTuple):
    """What a coordinator was asked."""

    coordinator: str
    cases: int
    passed: int


def forget() -> None:
    """A new run begins."""
    shutil.rmtree(ROWS, ignore_errors=True)


def put_down(row: Row) -> None:
    """Keep a row for the end of the run."""
    ROWS.mkdir(parents=True, exist_ok=True)
    (ROWS / row.coordinator).write_text(json.dumps(row))


def rows() -> list[Row]:
    """What was put down since the run began."""
    files = [ROWS / coordinator for coordinator in TITLES]
    return [Row(*json.loads(file.read_text())) for file in files if file.exists()]


def divergences() -> list[str]:
    """In what Rota differs from Kafka on purpose."""
    return ROW_OF_THE_LIST.findall(DIVERGENCES.read_text())


def text(shown: Sequence[Row]) -> str:
    """The table."""
    lines = [f"{'conformance':<16}{'cases':>7}{'pass':>7}"]
    lines += [f"  {TITLES[row.coordinator]:<14}{row.cases:>7}{row.passed:>7}" for row in shown]
    lines.append(f"  differences on purpose: {len(divergences())} (docs/divergences.md)")
    return "\n".join(lines)


def summary() -> str:
    """All that was put down, and every difference by its name; empty when nothing was asked."""
    shown = rows()
    return "\n".join([text(shown), *(f"    {what}" for what in divergences())]) if shown else ""
