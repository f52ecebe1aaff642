"""Curves over time: a higher value is drawn higher, a later one further to the right, and each panel has an axis of its own."""

from xml.etree import ElementTree

import pytest

from benchmarks.peers.page import HEADER, with_charts
from scripts.time_chart import AXIS_W, CURVES_W, PANEL_H, Curve, Panel, drawn, ticks

SVG = "{http://www.w3.org/2000/svg}"
LAG = Panel("records", [Curve("Rota", [(0, 0), (5, 400), (10, 100)]), Curve("KEDA", [(0, 200), (10, 200)])])
PODS = Panel(
    "pods", [Curve("Rota", [(0, 2), (5, 2), (10, 6)]), Curve("KEDA", [(0, 2), (10, 3)])], is_stepped=True
)


def lines_of(*panels: Panel) -> list[list[tuple[float, float]]]:
    """Return the points of each curve."""
    chart = ElementTree.fromstring(drawn("A step & back", "minutes", panels))
    return [
        [(float(x), float(y)) for x, y in (point.split(",") for point in line.attrib["points"].split())]
        for line in chart.iter(f"{SVG}polyline")
    ]


@pytest.mark.parametrize(
    ("highest", "expected"),
    [
        (0, [0, 1]),
        (4, [0, 1, 2, 3, 4]),
        (12, [0, 2, 4, 6, 8, 10, 12]),
        (15, [0, 5, 10, 15]),
        (400, [0, 100, 200, 300, 400]),
        (1.5, [0, 0.5, 1, 1.5]),
        (14.9, [0, 2, 4, 6, 8, 10, 12, 14, 16]),
        (10, [0, 2, 4, 6, 8, 10]),
    ],
)
def test_an_axis_has_round_numbers_up_to_the_highest_value(highest: float, expected: list[float]) -> None:
    assert ticks(highest) == pytest.approx(expected)


def test_a_curve_goes_from_left_to_right_and_up_with_its_value() -> None:
    rota, keda = lines_of(LAG)
    assert [x for x, _ in rota] == pytest.approx([AXIS_W, AXIS_W + CURVES_W / 2, AXIS_W + CURVES_W])
    lowest = rota[0][1]
    assert [lowest - y for _, y in rota] == pytest.approx([0, PANEL_H, PANEL_H / 4])
    assert [lowest - y for _, y in keda] == pytest.approx([PANEL_H / 2, PANEL_H / 2])


def test_a_stepped_value_holds_until_the_next_one() -> None:
    rota, _ = lines_of(PODS)
    low = rota[0][1]
    assert [(x, y == low) for x, y in rota] == [(AXIS_W, True), (AXIS_W + CURVES_W / 2, True), (AXIS_W + CURVES_W, True), (AXIS_W + CURVES_W, False)]  # fmt: skip


def test_points_within_a_straight_part_are_left_out() -> None:
    flat = Panel("pods", [Curve("Rota", [(at, 2) for at in range(100)])])
    assert [len(line) for line in lines_of(flat)] == [2]


def test_panels_are_below_each_other_and_a_chart_says_what_it_shows() -> None:
    lag, _, pods, _ = lines_of(LAG, PODS)
    assert max(y for _, y in lag) < min(y for _, y in pods)
    chart = drawn("A step & back", "minutes", [LAG, PODS])
    assert "A step &amp; back: records, pods of Rota and KEDA" in chart
    texts = {each.text for each in ElementTree.fromstring(chart).iter(f"{SVG}text")}
    assert {"Rota", "KEDA", "records", "pods", "minutes", "400", "6"} <= texts


def test_a_page_of_measurements_shows_each_chart_once_above_its_table() -> None:
    page = f"# Benchmark: keda\n\nTwo Deployments.\n\n{HEADER}| 2026-11-27 |\n"
    once = with_charts(page, ["bench-keda-step", "bench-keda-burst"])
    assert with_charts(once, ["bench-keda-step"]) == once
    above, table = once.split(HEADER)
    assert above.splitlines()[4:] == ["![bench-keda-step](bench-keda-step.svg)", "", "![bench-keda-burst](bench-keda-burst.svg)", ""]  # fmt: skip
    assert table == "| 2026-11-27 |\n"
