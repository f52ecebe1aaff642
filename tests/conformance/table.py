"""
The table of conformance: how many cases there are, and how many pass on which coordinator.

Each process of a tier asks a coordinator some of its cases; so each puts its row down in a file, and the runner of
the tiers shows what they add up to when it is done.
"""

import json
import re
import shutil
from collections.abc import Iterable, Sequence
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
    """One request to a coordinator with its response."""

    coordinator: str
    cases: int
    passed: int


def forget() -> None:
    """A new run begins."""
    shutil.rmtree(ROWS, ignore_errors=True)


def put_down(test: str, row: Row) -> None:
    """Keep for the end of the run what became of the cases of a test."""
    ROWS.mkdir(parents=True, exist_ok=True)
    (ROWS / test).write_text(json.dumps(row))


def rows() -> list[Row]:
    """Return the rows recorded since the run began."""
    return added(Row(*json.loads(file.read_text())) for file in ROWS.glob("*"))


def added(each: Iterable[Row]) -> list[Row]:
    """One row for each coordinator, in the order of the table."""
    each = list(each)
    return [
        Row(coordinator, sum(row.cases for row in its), sum(row.passed for row in its))
        for coordinator in TITLES
        if (its := [row for row in each if row.coordinator == coordinator])
    ]


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
