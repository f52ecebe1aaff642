"""The page of benchmarks and its charts: the newest figures beside a peer's, and what is better to the right."""

from xml.etree import ElementTree

import pytest

from scripts.bar_chart import BARS_W, LABEL_W, Bar, drawn
from scripts.generate_benchmarks import TOPICS, Figure, Topic, figures_of, losses, measured, shown

SVG = "{http://www.w3.org/2000/svg}"
PAGE = """# Benchmark: log

| date | commit | cores, load | what | Rota | beside it | ratio | goal |
|---|---|---|---|---|---|---|---|
| 2026-11-20 | a | 2, 0.0 | sent | 100/s | Kafka 400/s | 0.25 | ≥ 1: missed |
| 2026-11-21 | b | 2, 0.1 | sent | 300/s | Kafka 400/s | 0.75 | ≥ 1: missed |
| 2026-11-21 | b | 2, 0.1 | 1,000/s: half of them within | 2 ms | Kafka 8 ms | 0.25 |  |
| 2026-11-21 | b | 2, 0.1 | heartbeats/s | 6,213 | Kafka 39,530 | 0.16 |  |
| 2026-11-21 | b | 2, 0.1 | gzip: fetched | 9/s | none 3/s | 3.00 |  |
| 2026-11-21 | b | 2, 0.1 | rebalances | 0 | 3 | 0.00 |  |
| 2026-11-21 | b | 2, 0.1 | memory | 59 MB |  |  | ≤ 64: met |
"""


def test_the_newest_figure_counts_and_times_say_how_much_better_it_is() -> None:
    found = {each.what: each for each in figures_of("log", PAGE)}
    assert {what: each.times for what, each in found.items()} == {
        "sent": 0.75,
        "1,000/s: half of them within": 4.0,
        "heartbeats/s": 0.16,
        "gzip: fetched": 3.0,
    }
    assert found["sent"] == Figure("log", "2026-11-21", "2, 0.1", "sent", "300/s", "Kafka 400/s", 0.75)


def test_a_chart_has_the_figures_beside_its_peer_only() -> None:
    [log] = [each for each in TOPICS if each.name == "log"]
    assert "gzip: fetched" not in {each.what for each in shown(log, {"log": PAGE})}


def test_losses_are_listed_worst_first() -> None:
    rows = [line for line in losses(figures_of("log", PAGE)).splitlines() if line.startswith("| log")]
    assert rows == [
        "| log: heartbeats/s | 6,213 | Kafka 39,530 | 6.2 |",
        "| log: sent | 300/s | Kafka 400/s | 1.3 |",
    ]


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_each_chart_has_figures(topic: Topic) -> None:
    assert shown(topic, measured())


def test_what_is_better_is_drawn_to_the_right() -> None:
    bars = [
        Bar("fast & small", 4.0, "1 ms beside 4 ms"),
        Bar("slow", 0.125, "8 ms beside 1 ms"),
        Bar("same", 1.0, ""),
    ]
    chart = ElementTree.fromstring(drawn("Log", bars))
    zero = LABEL_W + BARS_W * 3 / 5
    drawn_bars = list(chart.iter(f"{SVG}rect"))
    step = BARS_W / 5
    assert [each.get("class") for each in drawn_bars] == ["better", "worse", "better"]
    found = [float(each.get(name, "")) for each in drawn_bars for name in ("x", "width")]
    assert found == pytest.approx([zero, 2 * step, zero - 3 * step, 3 * step, zero, 1])
    texts = [each.text for each in chart.iter(f"{SVG}text")]
    assert {"fast & small", "4.00 ×", "1/8 ×"} <= {*texts}
