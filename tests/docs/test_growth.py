"""The section about growing work and its charts: costs by size, as times the cost of the smallest size."""

from xml.etree import ElementTree

import pytest

from benchmarks.growth import SIZES, line
from benchmarks.peers.growing import Cost
from scripts.generate_benchmarks import files_of, measured, newest_of
from scripts.growth_chart import PLOT_H, PLOT_W, PLOT_X, PLOT_Y, Line, Point, drawn
from scripts.growth_section import PARTS

SVG = "{http://www.w3.org/2000/svg}"
HEAD = """# Benchmark: growth

| date | commit | cores, load | what | Rota | beside it | ratio | goal |
|---|---|---|---|---|---|---|---|
"""
PAGE = f"""{HEAD}| 2026-11-20 | a | 2, 0.0 | groups: memory, 10 | 70.00 MiB |  |  |  |
| 2026-11-21 | b | 2, 0.0 | groups: memory, 10 | 60.00 MiB |  |  |  |
| 2026-11-21 | b | 2, 0.0 | groups: memory, 1,000 | 90.00 MiB | 10: 60.00 MiB | 1.50 | ≤ 150: met |
| 2026-11-21 | b | 2, 0.0 | groups: processor time of 500 commits, 10 | 0.00 s |  |  |  |
| 2026-11-21 | b | 2, 0.0 | groups: processor time of 500 commits, 1,000 | 1.00 s | 10: 0.00 s | 100.00 | ≤ 150: met |
"""


def test_without_measurements_nothing_is_shown() -> None:
    files = files_of({**measured(), "growth": HEAD})
    assert not any("growth" in path for path in files)
    assert "When the work grows" not in files["benchmarks.md"]


def test_a_part_has_a_chart_and_a_table_of_its_newest_figures_by_size() -> None:
    files = files_of({**measured(), "growth": PAGE})
    assert [path for path in files if "growth" in path] == ["benchmarks/growth-groups.svg"]
    page = files["benchmarks.md"]
    assert "| groups | 10 | 1,000 | date; cores, of them used by others |" in page
    assert "| memory | 60.00 MiB | 90.00 MiB | 2026-11-21, 2, 0.0 |" in page
    assert "70.00 MiB" not in page
    titles = [
        each.text
        for each in ElementTree.fromstring(files["benchmarks/growth-groups.svg"]).iter(f"{SVG}title")
    ]
    assert "memory: 1,000: 90.00 MiB" in titles


def test_what_the_benchmark_records_is_what_the_page_reads() -> None:
    first, second = Cost("memory, on Kafka", 1_234.5, "MiB"), Cost("memory, on Kafka", 2_469, "MiB")
    rows = [line("partitions", first, 1, None, 0), line("partitions", second, 2_000, first, 1)]
    page = HEAD + "".join(
        f"| {' | '.join(('2026-11-21', 'b', '2, 0.0', *each.cells()))} |\n" for each in rows
    )
    assert len(newest_of(page)) == len(rows)
    files = files_of({**measured(), "growth": page})
    assert "| memory, on Kafka | 1,234.50 MiB | 2,469.00 MiB | 2026-11-21, 2, 0.0 |" in files["benchmarks.md"]
    assert (rows[1].ratio, rows[1].goal) == (2.0, "≤ 3,000: met")


def test_a_cost_that_grows_faster_than_the_work_misses_its_goal() -> None:
    found = line("groups", Cost("memory", 160, "MiB"), 100, Cost("memory", 10, "MiB"), 10)
    assert found.goal == "≤ 15: missed"


@pytest.mark.parametrize("part", SIZES)
def test_each_part_has_a_title_and_rising_sizes(part: str) -> None:
    assert part in PARTS
    assert all(list(sizes) == sorted(set(sizes)) for sizes in SIZES[part])


def test_linear_growth_follows_the_dashed_line() -> None:
    chart = ElementTree.fromstring(
        drawn(
            "Growth", "groups", [Line("linear", [Point(10, 1, "10: 1 s"), Point(1_000, 100, "1,000: 100 s")])]
        )
    )
    (dashed,) = (each for each in chart.iter(f"{SVG}line") if each.get("class") == "linear")
    (path,) = (each.get("points", "") for each in chart.iter(f"{SVG}polyline"))
    corners = [float(number) for pair in path.split() for number in pair.split(",")]
    assert corners == pytest.approx([float(dashed.get(name, "")) for name in ("x1", "y1", "x2", "y2")])
    assert corners == pytest.approx([PLOT_X, PLOT_Y + PLOT_H, PLOT_X + PLOT_W, PLOT_Y])
