"""Frames drawings as SVG documents with a title, for light and dark pages."""

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

LIGHT = """
text { font: 12px sans-serif; fill: #24292f; }
.title { font-size: 15px; font-weight: bold; }
.axis { stroke: #8c959f; stroke-width: 1; }
.grid { stroke: #d0d7de; stroke-width: 1; }
"""
DARK = """
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .grid { stroke: #30363d; }
}
"""


def document(title: str, says: str, size: tuple[int, int], style: str, parts: Iterable[str]) -> str:
    """Return the SVG of a width and a height; `says` is what a reader who cannot see it hears, `style` what its own classes look like."""
    width, height = size
    box = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" aria-label={quoteattr(says)}>',
        f"<style>{LIGHT}{style.strip()}{DARK}</style>",
        f'<text class="title" x="0" y="16">{escape(title)}</text>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def shortened(label: str, length_max: int) -> str:
    """Return a label that is cut, with an ellipsis, where it is too long."""
    return label if len(label) <= length_max else f"{label[: length_max - 1]}…"
