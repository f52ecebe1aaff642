"""Draws curves over time as SVG: panels below each other with one time axis, and in each the curves of the same series."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from scripts.svg import document

AXIS_W, CURVES_W, RIGHT_W = 60, 820, 20
WIDTH = AXIS_W + CURVES_W + RIGHT_W
TITLE_H, PANEL_TOP_H, PANEL_H, BOTTOM_H = 36, 40, 170, 34
# Of the time axis and of each panel's, at least.
TICKS_MIN = 3
SERIES_MAX = 3
LEGEND_W = 150
STYLE = """
polyline { fill: none; stroke-width: 2; }
.series0 { stroke: #0969da; }
.series1 { stroke: #cf7a26; }
.series2 { stroke: #8250df; }
"""


class Curve(NamedTuple):
    """Values of a series over time: pairs of a time and a value that is 0 or more, the earliest first."""

    series: str
    points: Sequence[tuple[float, float]]


class Panel(NamedTuple):
    """Curves with one unit. At most SERIES_MAX of them."""

    title: str
    curves: Sequence[Curve]
    # A value holds until the next one.
    is_stepped: bool = False


def drawn(title: str, time_title: str, panels: Sequence[Panel]) -> str:
    """Return the SVG; all panels have the series of the first one, in its order, and at least one point."""
    series = [each.series for each in panels[0].curves]
    end = max(at for panel in panels for curve in panel.curves for at, _ in curve.points)
    height = TITLE_H + len(panels) * (PANEL_TOP_H + PANEL_H) + BOTTOM_H
    says = f"{title}: {', '.join(panel.title for panel in panels)} of {' and '.join(series)}"
    parts = list(_legend(series))
    for number, panel in enumerate(panels):
        top = TITLE_H + number * (PANEL_TOP_H + PANEL_H) + PANEL_TOP_H
        parts += _panel(panel, top, end)
    parts.append(
        f'<text x="{AXIS_W + CURVES_W}" y="{height - 2}" text-anchor="end">{escape(time_title)}</text>'
    )
    return document(title, says, (WIDTH, height), STYLE, parts)


def ticks(highest: float) -> list[float]:
    """Return round numbers from 0 on, at equal distances, of which the last one is the highest value or more."""
    if highest <= 0:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(highest))
    # Whole numbers stay whole.
    steps = [power * share for share in (1.0, 0.5, 0.2)]
    step = next((each for each in steps if highest / each >= TICKS_MIN), steps[-1])
    return [step * number for number in range(math.ceil(highest / step - 1e-9) + 1)]


def _legend(series: Sequence[str]) -> Iterator[str]:
    for number, name in enumerate(series):
        x = AXIS_W + number * LEGEND_W
        yield f'<line class="series{number}" x1="{x}" y1="32" x2="{x + 24}" y2="32" stroke-width="2"/>'
        yield f'<text x="{x + 30}" y="36">{escape(name)}</text>'


def _panel(panel: Panel, top: int, end: float) -> Iterator[str]:
    marks = ticks(max(value for curve in panel.curves for _, value in curve.points))
    bottom = top + PANEL_H

    def x_of(at: float) -> float:
        return AXIS_W + CURVES_W * at / end

    def y_of(value: float) -> float:
        return bottom - PANEL_H * value / marks[-1]

    yield f'<text x="{AXIS_W}" y="{top - 8}">{escape(panel.title)}</text>'
    for mark in marks:
        y = y_of(mark)
        yield f'<line class="grid" x1="{AXIS_W}" y1="{y:.1f}" x2="{AXIS_W + CURVES_W}" y2="{y:.1f}"/>'
        yield f'<text x="{AXIS_W - 6}" y="{y + 4:.1f}" text-anchor="end">{mark:,g}</text>'
    for mark in ticks(end):
        if mark <= end:
            yield f'<line class="grid" x1="{x_of(mark):.1f}" y1="{top}" x2="{x_of(mark):.1f}" y2="{bottom}"/>'
            yield f'<text x="{x_of(mark):.1f}" y="{bottom + 14}" text-anchor="middle">{mark:,g}</text>'
    for number, curve in enumerate(panel.curves):
        points = " ".join(f"{x_of(at):.1f},{y_of(value):.1f}" for at, value in _corners(panel, curve))
        yield f'<polyline class="series{number}" points="{points}"><title>{escape(curve.series)}</title></polyline>'


def _corners(panel: Panel, curve: Curve) -> Iterator[tuple[float, float]]:
    """Yield the points that the line goes through; straight parts have their ends only."""
    points = curve.points
    for number, (at, value) in enumerate(points):
        before = points[number - 1][1] if number else value
        after = points[number + 1][1] if number + 1 < len(points) else None
        if before == value == after and number:
            continue
        if panel.is_stepped and before != value:
            yield at, before
        yield at, value
