"""
The section of docs/benchmarks.md about growing work, and its charts; `scripts/generate_benchmarks.py` calls it.

It reads what `benchmarks/growth.py` recorded. A row names its part, the cost and the size: `groups: memory, 10,000`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scripts.growth_chart import Line, Point, drawn

BENCHMARK = "growth"
WHAT = re.compile(r"^(?P<part>\w+): (?P<cost>.+), (?P<size>[\d,]+)$")
AMOUNT = re.compile(r"^(?P<number>[\d.,]+) \S+$")
# Smaller amounts are below the resolution of the clocks.
AMOUNT_MIN = 0.01
SAYS = (
    "What the same work costs when there is more of one thing. The charts show how many times the cost of the smallest size; the dashed line is "
    "linear growth, and a flat line costs nothing more."
)


class Part(NamedTuple):
    """Kind of growth: the title of its chart, and what its sizes count."""

    title: str
    unit: str


PARTS: Mapping[str, Part] = {
    "groups": Part("Groups of a coordinator", "groups"),
    "members": Part("Members of one group", "members"),
    "partitions": Part("Partitions of one sidecar", "partitions"),
    "topics": Part("Topics that a sidecar consumes by pattern", "topics"),
    "sizes": Part("Size of records", "bytes of a record"),
}


class Row(NamedTuple):
    """The newest recorded cost at one size."""

    part: str
    cost: str
    size: int
    amount: str
    date: str
    machine: str

    @property
    def number(self) -> float:
        """The amount without its unit."""
        found = AMOUNT.match(self.amount)
        return max(float(found["number"].replace(",", "")), AMOUNT_MIN) if found else AMOUNT_MIN


def files_of(rows: Sequence[Sequence[str]], folder: str) -> tuple[str, dict[str, str]]:
    """Return the section, empty without rows, and the charts by their paths; rows are those of the newest measurements."""
    found = [row for cells in rows if (row := _row(cells)) is not None]
    by_part = {name: [row for row in found if row.part == name] for name in PARTS}
    measured = {name: rows for name, rows in by_part.items() if rows}
    charts = {
        f"{folder}/{BENCHMARK}-{name}.svg": drawn(PARTS[name].title, PARTS[name].unit, _lines(rows))
        for name, rows in measured.items()
    }
    sections = "".join(_section(name, rows, folder) for name, rows in measured.items())
    return (f"## When the work grows\n\n{SAYS}\n\n{sections}" if sections else "", charts)


def _row(cells: Sequence[str]) -> Row | None:
    date, _, machine, what, amount, *_ = cells
    found = WHAT.match(what)
    if found is None:
        return None
    return Row(found["part"], found["cost"], int(found["size"].replace(",", "")), amount, date, machine)


def _by_cost(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.size):
        found.setdefault(row.cost, []).append(row)
    return found


def _lines(rows: Sequence[Row]) -> list[Line]:
    return [
        Line(
            cost,
            [Point(row.size, row.number / mine[0].number, f"{row.size:,}: {row.amount}") for row in mine],
        )
        for cost, mine in _by_cost(rows).items()
    ]


def _section(name: str, rows: Sequence[Row], folder: str) -> str:
    """Return the chart of a part, and a table with a column for each size."""
    part = PARTS[name]
    sizes = sorted({row.size for row in rows})
    head = " | ".join(f"{size:,}" for size in sizes)
    lines = []
    for cost, mine in _by_cost(rows).items():
        amounts = {row.size: row.amount for row in mine}
        cells = " | ".join(amounts.get(size, "") for size in sizes)
        lines.append(f"| {cost} | {cells} | {mine[-1].date}, {mine[-1].machine} |\n")
    return (
        f"### {part.title}\n\n![{part.title}]({folder}/{BENCHMARK}-{name}.svg)\n\n"
        f"| {part.unit} | {head} | date; cores, of them used by others |\n|---|{'---|' * len(sizes)}---|\n{''.join(lines)}\n"
    )
