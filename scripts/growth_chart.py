"""Draws lines over two logarithmic axes as SVG: how much more something costs when the work grows, beside linear growth."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from scripts.svg import document, shortened

PLOT_X, PLOT_Y, PLOT_W, PLOT_H = 70, 36, 420, 260
LEGEND_X = PLOT_X + PLOT_W + 20
WIDTH, BOTTOM_H, ROW_H = 920, 44, 18
LABEL_LENGTH_MAX = 58
# The vertical axis shows this many powers of ten at least.
POWERS_MIN = 2
COLOURS = ("#0969da", "#2da44e", "#cf7a26", "#8250df", "#cf222e", "#1b7c83", "#bf3989", "#7d8590")
STYLE = """
.linear { stroke: #8c959f; stroke-width: 1; stroke-dasharray: 4 4; }
"""


class Point(NamedTuple):
    """A size of the work, and what it costs: times the cost of the smallest size. Both are above 0; `says` is shown when it is pointed at."""

    size: float
    times: float
    says: str


class Line(NamedTuple):
    """The points of one kind of cost, by size."""

    label: str
    points: Sequence[Point]


class _Axes(NamedTuple):
    """Powers of ten at the ends of both axes."""

    left: int
    right: int
    low: int
    high: int

    def x(self, size: float) -> float:
        return PLOT_X + (math.log10(size) - self.left) / (self.right - self.left) * PLOT_W

    def y(self, times: float) -> float:
        return PLOT_Y + PLOT_H - (math.log10(times) - self.low) / (self.high - self.low) * PLOT_H


def drawn(title: str, unit: str, lines: Sequence[Line]) -> str:
    """Return the SVG; `unit` says what sizes count. The dashed line is linear growth from the smallest size."""
    axes = _axes([point for line in lines for point in line.points])
    height = max(PLOT_Y + PLOT_H + BOTTOM_H, PLOT_Y + ROW_H * (len(lines) + 1))
    parts = [
        *_grid(axes),
        f'<text x="{PLOT_X + PLOT_W / 2}" y="{PLOT_Y + PLOT_H + 36}" text-anchor="middle">{escape(unit)}</text>',
        *_linear(axes, min(point.size for line in lines for point in line.points)),
        *(part for number, line in enumerate(lines) for part in _line(axes, number, line)),
        f'<text x="{LEGEND_X}" y="{PLOT_Y + ROW_H * len(lines) + 12}">dashed: linear growth</text>',
    ]
    return document(title, title, (WIDTH, height), STYLE, parts)


def _axes(points: Sequence[Point]) -> _Axes:
    left = math.floor(math.log10(min(point.size for point in points)))
    right = max(math.ceil(math.log10(max(point.size for point in points))), left + 1)
    low = min(0, math.floor(math.log10(min(point.times for point in points))))
    high = max(math.ceil(math.log10(max(point.times for point in points))), low + POWERS_MIN)
    return _Axes(left, right, low, high)


def _grid(axes: _Axes) -> Iterator[str]:
    top, bottom = PLOT_Y, PLOT_Y + PLOT_H
    for power in range(axes.left, axes.right + 1):
        x = axes.x(10.0**power)
        yield (
            f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'
            f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{10**power:,}</text>'
        )
    for power in range(axes.low, axes.high + 1):
        y = axes.y(10.0**power)
        kind = "axis" if power == 0 else "grid"
        text = f"{10**power:,} ×" if power >= 0 else f"1/{10**-power:,} ×"
        yield (
            f'<line class="{kind}" x1="{PLOT_X}" y1="{y:.1f}" x2="{PLOT_X + PLOT_W}" y2="{y:.1f}"/>'
            f'<text x="{PLOT_X - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
        )


def _linear(axes: _Axes, smallest: float) -> Iterator[str]:
    """Yield the line of linear growth, up to the end of the axis that it reaches first."""
    growth = min(10.0**axes.right / smallest, 10.0**axes.high)
    x, y = axes.x(smallest * growth), axes.y(growth)
    yield f'<line class="linear" x1="{axes.x(smallest):.1f}" y1="{axes.y(1):.1f}" x2="{x:.1f}" y2="{y:.1f}"/>'


def _line(axes: _Axes, number: int, line: Line) -> Iterator[str]:
    colour = COLOURS[number % len(COLOURS)]
    label = shortened(line.label, LABEL_LENGTH_MAX)
    path = " ".join(f"{axes.x(point.size):.1f},{axes.y(point.times):.1f}" for point in line.points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for point in line.points:
        yield (
            f"<g><title>{escape(f'{line.label}: {point.says}')}</title>"
            f'<circle cx="{axes.x(point.size):.1f}" cy="{axes.y(point.times):.1f}" r="4" fill="{colour}"/></g>'
        )
    y = PLOT_Y + ROW_H * number
    yield (
        f'<rect x="{LEGEND_X}" y="{y}" width="12" height="12" fill="{colour}"/>'
        f'<text x="{LEGEND_X + 18}" y="{y + 10}">{escape(label)}</text>'
    )
