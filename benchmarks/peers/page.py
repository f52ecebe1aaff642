"""Print the results of a benchmark, and with --record add them to docs/measurements."""

import argparse
import datetime
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.rounds import used_by_others_s
from scripts import generate_benchmarks

MEASUREMENTS = Path(__file__).parents[2] / "docs" / "measurements"
HEADER = "| date | commit | cores, load | what | Rota | beside it | ratio | goal |\n|---|---|---|---|---|---|---|---|\n"
WIDTHS = (46, 16, 34, 8)


@dataclass(frozen=True, slots=True)
class Goal:
    """Goal of a figure, as text and as a predicate."""

    text: str
    met: Callable[[float], bool]


def at_least(bound: float) -> Goal:
    """The goal that a figure reaches a bound."""
    return Goal(f"≥ {bound:,g}", lambda figure: figure >= bound)


def at_most(bound: float) -> Goal:
    """The goal that a figure stays below a bound."""
    return Goal(f"≤ {bound:,g}", lambda figure: figure <= bound)


@dataclass(frozen=True, slots=True)
class Line:
    """Figure of Rota, and the figure it is compared with from the same run."""

    what: str
    rota: str
    beside: str = ""
    # Median over the rounds of the ratio of the two figures; each round measures both.
    ratio: float | None = None
    # The goal, and whether it was met.
    goal: str = ""

    def cells(self) -> tuple[str, str, str, str, str]:
        """Return the cells of the printed row."""
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        return self.what, self.rota, self.beside, ratio, self.goal


def judged(goal: Goal, figure: float) -> str:
    """Return the goal's text, and whether the figure meets it."""
    return f"{goal.text}: {'met' if goal.met(figure) else 'missed'}"


def median_ratio(pairs: Iterable[tuple[float, float]]) -> float:
    """Return the median ratio of figures measured side by side, which cancels out variations of the machine."""
    return statistics.median(ours / theirs for ours, theirs in pairs)


class Page:
    """The result of one benchmark; created first, so that invalid flags are rejected before the measurement."""

    def __init__(self, name: str, explanation: str, quick: str = "", parts: Sequence[str] = ()) -> None:
        """
        `quick` is the help text of --quick, empty without that flag; results with --quick are not recorded. `parts` are the names of
        which the command line may give some, to measure no others.
        """
        parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=explanation)
        kinds = parser.add_mutually_exclusive_group()
        kinds.add_argument("--record", action="store_true", help="add the result to docs/measurements")
        if quick:
            kinds.add_argument("--quick", action="store_true", help=quick)
        if parts:
            parser.add_argument(
                "--only", action="append", choices=parts, help="measure this part; repeatable"
            )
        options = parser.parse_args()
        self.parts: Sequence[str] = (options.only if parts else None) or parts
        self._keep = options.record
        self.quick = bool(quick) and options.quick
        self._name = name
        self._explanation = explanation
        self._began = time.perf_counter()
        self._used_before = used_by_others_s()

    def show(
        self, lines: Sequence[Line], others: float | None = None, charts: Mapping[str, str] | None = None
    ) -> None:
        """
        Print the table, and record it with --record, with charts as SVG by their names. `others` is the number of CPU cores that other processes used; if
        not measured per round, it is that of the whole run, which includes the servers.
        """
        if others is None:
            others = (used_by_others_s() - self._used_before) / (time.perf_counter() - self._began)
        machine = f"{os.cpu_count()} cores, {others:.1f} of them used by others"
        head = ("", "Rota", "beside it", "ratio", "goal")
        print(f"\n{self._name}: {self._explanation}; {machine}")
        for cells in (head, *(line.cells() for line in lines)):
            padded = [f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=False)]
            print(" ".join([*padded, cells[-1]]).rstrip(), flush=True)
        if self._keep:
            self._record(lines, f"{os.cpu_count()}, {others:.1f}", charts or {})

    def _record(self, lines: Sequence[Line], machine: str, charts: Mapping[str, str]) -> None:
        page = MEASUREMENTS / f"bench-{self._name}.md"
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        command = ["git", "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        rows = [f"| {' | '.join((today, commit, machine, *line.cells()))} |\n" for line in lines]
        before = (
            page.read_text()
            if page.exists()
            else f"# Benchmark: {self._name}\n\n{self._explanation}\n\n{HEADER}"
        )
        for name, chart in charts.items():
            (MEASUREMENTS / f"{name}.svg").write_text(chart)
        page.write_text(with_charts(before, charts) + "".join(rows))
        written = [page, *(MEASUREMENTS.parent / path for path in generate_benchmarks.write())]
        print(f"written to {', '.join(str(each.relative_to(MEASUREMENTS.parents[1])) for each in written)}")


def with_charts(text: str, names: Iterable[str]) -> str:
    """Return the text of a page that shows these charts above its table."""
    for name in names:
        shown = f"![{name}]({name}.svg)\n\n"
        if shown not in text:
            text = text.replace(HEADER, f"{shown}{HEADER}", 1)
    return text
