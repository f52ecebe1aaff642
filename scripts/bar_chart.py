"""Draws horizontal bars on a logarithmic axis as SVG: to the right of 1 what is better, to the left what is worse."""

import math
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from scripts.svg import document, shortened

LABEL_W, BARS_W, VALUE_W = 430, 420, 70
WIDTH = LABEL_W + BARS_W + VALUE_W
ROW_H, BAR_H, TOP_H, BOTTOM_H = 20, 12, 44, 12
LABEL_LENGTH_MAX = 68
# The axis shows this many powers of two at least, to both sides.
POWERS_MIN = 2
STYLE = """
.better { fill: #2da44e; }
.worse { fill: #cf7a26; }
"""


class Bar(NamedTuple):
    """A bar: how many times better something is, which is above 0; `says` is shown when it is pointed at."""

    label: str
    times: float
    says: str


def drawn(title: str, bars: Sequence[Bar]) -> str:
    """Return the SVG."""
    left = max([POWERS_MIN, *(math.ceil(-math.log2(each.times)) for each in bars)])
    right = max([POWERS_MIN, *(math.ceil(math.log2(each.times)) for each in bars)])
    scale = BARS_W / (left + right)
    bottom = TOP_H + ROW_H * len(bars)
    height = bottom + BOTTOM_H

    def at(times: float) -> float:
        return LABEL_W + (left + math.log2(times)) * scale

    parts = [
        *(_tick(at(2.0**power), power, bottom) for power in range(-left, right + 1)),
        *(_row(each, TOP_H + ROW_H * number, at(1), at(each.times)) for number, each in enumerate(bars)),
    ]
    return document(title, f"{title}, Rota beside its peer", (WIDTH, height), STYLE, parts)


def _tick(x: float, power: int, bottom: int) -> str:
    kind = "axis" if power == 0 else "grid"
    text = f"{2**power} ×" if power >= 0 else f"1/{2**-power} ×"
    return (
        f'<line class="{kind}" x1="{x:.1f}" y1="{TOP_H - 6}" x2="{x:.1f}" y2="{bottom}"/>'
        f'<text x="{x:.1f}" y="{TOP_H - 12}" text-anchor="middle">{text}</text>'
    )


def _row(bar: Bar, y: int, zero: float, end: float) -> str:
    label = shortened(bar.label, LABEL_LENGTH_MAX)
    kind = "better" if bar.times >= 1 else "worse"
    baseline = y + BAR_H - 2
    return (
        f"<g><title>{escape(f'{bar.label}: {bar.says}')}</title>"
        f'<text x="{LABEL_W - 10}" y="{baseline}" text-anchor="end">{escape(label)}</text>'
        f'<rect class="{kind}" x="{min(zero, end):.1f}" y="{y}" width="{max(1.0, abs(end - zero)):.1f}" height="{BAR_H}"/>'
        f'<text x="{LABEL_W + BARS_W + 6}" y="{baseline}">{bar.times:.2f} ×</text></g>'
    )
