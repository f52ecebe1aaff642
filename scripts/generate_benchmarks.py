"""
Writes docs/benchmarks.md and its charts: the newest figures of docs/measurements that stand beside those of a peer.

Run as `python -m scripts.generate_benchmarks`; `--check` only compares. Called by make, and after a benchmark was recorded. A figure is
drawn as how many times better Rota is than its peer: a rate as it is, a time or a size inverted. What growing work costs has a
section of its own (`growth_section.py`), once it was measured.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts import growth_section
from scripts.bar_chart import Bar, drawn

DOCS = Path(__file__).parents[1] / "docs"
PAGE = "benchmarks.md"
FOLDER = "benchmarks"
CELLS = 8
# Of a rate: the figure itself, or what is counted without a unit.
RATE = re.compile(r"^[\d,.]+/s$")
COUNT = re.compile(r"^[\d,.]+$")
# Smaller differences are within the spread of a benchmark.
WORSE = 0.95
HEAD = """<!-- Generated from docs/measurements by scripts/generate_benchmarks.py; do not edit. -->
# Benchmarks

The newest recorded figures of Rota, beside those of a peer that was measured in the same run on the same machine, of which the tables name the
cores. A bar to the right says how many times better Rota was, and one to the left how many times worse: a rate that is higher, or a
time or size that is smaller, is better. Figures without a peer, goals, and all earlier runs are in [measurements](measurements/README.md).

To run one again: `make setup`, then `.venv/bin/python -m benchmarks.NAME`, with the name in the tables; `--record` adds the result to
the measurements and draws this page anew. `make bench` runs all of them, one after the other, for more than an hour. Nothing else should
run meanwhile: each table says how many of the cores others used.

"""


class Figure(NamedTuple):
    """The newest recorded figure of one thing that is measured."""

    benchmark: str
    date: str
    machine: str
    what: str
    rota: str
    beside: str
    # How many times better Rota is.
    times: float


class Topic(NamedTuple):
    """A chart: benchmarks with the same peer."""

    name: str
    title: str
    says: str
    benchmarks: Sequence[str]
    # Of the figures that are shown: what is measured, and what stands beside it.
    what: str = ""
    beside: str = ""


TOPICS = (
    Topic(
        "coordinator",
        "Coordinator",
        "Rota's coordinator on SQLite beside a Kafka broker. Rota answers a commit once it is on the disk, Kafka before that.",
        ("commits", "heartbeats", "joining", "loading"),
        beside="^Kafka",
    ),
    Topic(
        "log",
        "Embedded log",
        "The embedded log beside a Kafka broker with librdkafka.",
        ("log",),
        beside="^Kafka",
    ),
    Topic(
        "sidecar",
        "Sidecar",
        "Records that reach an application through the sidecar, beside confluent-kafka in the application itself.",
        ("delivery", "sidecar"),
        beside="^confluent-kafka",
    ),
    Topic(
        "pods",
        "Pods that are replaced",
        "Time without an owner (median of the partitions), beside a Deployment of plain consumers with confluent-kafka, cooperative-sticky.",
        ("pods",),
    ),
    Topic(
        "autoscaling",
        "Autoscaling",
        "Rebalances of a simulated group, beside KEDA's Kafka scaler with its defaults, by trace of load; the tables have lateness and replica-hours too.",
        ("autoscaling",),
        what=", default$",
    ),
    Topic(
        "keda",
        "Autoscaling in one cluster",
        "A ConsumerGroup beside plain consumers of confluent-kafka that the real KEDA scales, in one cluster with the same records, both with their defaults.",
        ("keda",),
        beside="^KEDA",
    ),
    Topic(
        "spark",
        "Spark",
        "Rota's data source beside confluent-kafka in `mapInArrow` and beside quoted figures of the JVM connector; the sink beside a plain append.",
        ("spark",),
        beside="^(JVM|mapInArrow|plain)",
    ),
    Topic(
        "assignors",
        "Assignment strategies",
        "Processor time of a leader, beside Kafka's Java classes.",
        ("assignors",),
        beside="^Java",
    ),
    Topic(
        "scrapes",
        "Scrapes",
        "Pages of metrics, beside those of prometheus_client with as many series.",
        ("scrapes",),
        beside="^prometheus_client",
    ),
)


def newest_of(page: str) -> Sequence[Sequence[str]]:
    """Return the cells of the newest row of each thing in a page of measurements, in the order of the page."""
    newest: dict[str, Sequence[str]] = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == CELLS and cells[0][:1].isdigit():
            newest.pop(cells[3], None)
            newest[cells[3]] = cells
    return tuple(newest.values())


def figures_of(benchmark: str, page: str) -> Iterator[Figure]:
    """Yield the newest figure of each thing in a page of measurements that has a ratio, in the order of the page."""
    for date, _, machine, what, rota, beside, ratio, _ in newest_of(page):
        if ratio and float(ratio) > 0:
            times = float(ratio) if is_rate(what, rota) else 1 / float(ratio)
            yield Figure(benchmark, date, machine, what, rota, beside, times)


def is_rate(what: str, rota: str) -> bool:
    """Return whether more is better."""
    return bool(RATE.match(rota)) or (bool(COUNT.match(rota)) and "/s" in what)


def shown(topic: Topic, pages: Mapping[str, str]) -> list[Figure]:
    """Return the figures of a chart."""
    return [
        figure
        for benchmark in topic.benchmarks
        for figure in figures_of(benchmark, pages[benchmark])
        if re.search(topic.what, figure.what) and re.search(topic.beside, figure.beside)
    ]


def section(topic: Topic, figures: Iterable[Figure]) -> str:
    """Return the text of a chart."""
    rows = "".join(
        f"| {each.benchmark} | {each.what} | {each.rota} | {each.beside} | {each.times:.2f} | {each.date}, {each.machine} |\n"
        for each in figures
    )
    return (
        f"## {topic.title}\n\n{topic.says}\n\n![{topic.title}]({FOLDER}/{topic.name}.svg)\n\n"
        f"| benchmark | | Rota | beside it | times better | date; cores, of them used by others |\n|---|---|---|---|---|---|\n{rows}\n"
    )


def chart(topic: Topic, figures: Iterable[Figure]) -> str:
    """Return the chart itself; a bar of one of several benchmarks begins with its name."""
    is_one = len(topic.benchmarks) == 1
    bars = [
        Bar(
            each.what if is_one else f"{each.benchmark}: {each.what}",
            each.times,
            f"{each.rota} beside {each.beside}",
        )
        for each in figures
    ]
    return drawn(topic.title, bars)


def losses(figures: Iterable[Figure]) -> str:
    """Return the section about what Rota does worse, worst first."""
    worse = sorted((each for each in figures if each.times < WORSE), key=lambda each: each.times)
    rows = "".join(
        f"| {each.benchmark}: {each.what} | {each.rota} | {each.beside} | {1 / each.times:.1f} |\n"
        for each in worse
    )
    return (
        "## Where Rota loses\n\nEach figure above that is worse than that of its peer, worst first.\n\n"
        f"| | Rota | beside it | times worse |\n|---|---|---|---|\n{rows}"
    )


def files_of(pages: Mapping[str, str]) -> dict[str, str]:
    """Return the page and its charts, by their paths below docs."""
    found = {topic: shown(topic, pages) for topic in TOPICS}
    charts = {f"{FOLDER}/{topic.name}.svg": chart(topic, figures) for topic, figures in found.items()}
    sections = "".join(section(topic, figures) for topic, figures in found.items())
    everything = [figure for figures in found.values() for figure in figures]
    growth, lines = growth_section.files_of(newest_of(pages.get(growth_section.BENCHMARK, "")), FOLDER)
    return {PAGE: f"{HEAD}{sections}{growth}{losses(everything)}", **charts, **lines}


def measured() -> dict[str, str]:
    """Read the pages of measurements, by benchmark."""
    paths = (DOCS / "measurements").glob("bench-*.md")
    return {path.stem.removeprefix("bench-"): path.read_text() for path in paths}


def write() -> Sequence[str]:
    """Write what differs; return its paths below docs."""
    changed = differing()
    for path, text in changed.items():
        (DOCS / path).parent.mkdir(exist_ok=True)
        (DOCS / path).write_text(text)
    return tuple(changed)


def differing() -> dict[str, str]:
    """Return the files that are not as the measurements say."""
    made = files_of(measured())
    return {
        path: text
        for path, text in made.items()
        if not (DOCS / path).exists() or (DOCS / path).read_text() != text
    }


def main() -> None:
    """Write or compare."""
    parser = argparse.ArgumentParser(prog="python -m scripts.generate_benchmarks", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    if not parser.parse_args().check:
        print(f"benchmarks: {len(write())} files changed")
    elif changed := differing():
        sys.exit(
            f"benchmarks: {', '.join(changed)} in docs differ from docs/measurements; "
            "run '.venv/bin/python -m scripts.generate_benchmarks'"
        )
    else:
        print("benchmarks: ok")


if __name__ == "__main__":
    main()
