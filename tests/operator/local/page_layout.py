"""Layout of a page in a window: elements outside of it, boxes to scroll sideways, and the contrast of its texts."""

from tests.support.chromium import Tab

WITHIN_S = 60
WIDTHS = (1400, 400)
SCHEMES = ("light", "dark")
PAINTED = "new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))"
# Elements that are not within the window, apart from what a box that scrolls hides.
OUTSIDE = """
(() => {
  const clipped = (element) => element !== null && (getComputedStyle(element).overflowX !== "visible" || clipped(element.parentElement));
  return [...document.body.querySelectorAll("*")].filter((element) => {
    const box = element.getBoundingClientRect();
    return box.width > 1 && (box.right > innerWidth + 0.5 || box.left < -0.5) && !clipped(element.parentElement);
  }).map((element) => element.outerHTML.slice(0, 80));
})()
"""
# Boxes that have to be scrolled sideways.
SIDEWAYS = """
[...document.querySelectorAll("*")].filter((box) => box.scrollWidth > box.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(box).overflowX))
  .map((box) => box.outerHTML.slice(0, 80))
"""
TOO_WIDE = "document.scrollingElement.scrollWidth > innerWidth"
# Share of the width of the list that the text of each event has, at least.
EVENT_WIDTH = """
Math.min(...[...document.querySelectorAll("ol.events li")].map((item) => item.lastChild.getBoundingClientRect().width / item.getBoundingClientRect().width))
"""
# Texts whose colour differs too little from what is behind them, by the formula of WCAG 2; with the ratio.
PALE = """
(() => {
  const parse = (color) => color.match(/[0-9.]+/g).map(Number);
  const linear = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (element) => {
    const color = parse(getComputedStyle(element).backgroundColor);
    return color.length === 3 || color[3] > 0 || element.parentElement === null ? color : behind(element.parentElement);
  };
  const ratio = (one, two) => {
    const [high, low] = [luminance(one), luminance(two)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const hues = [...document.querySelectorAll("#patterns rect")].map((rect) => parse(getComputedStyle(rect).fill));
  const found = [];
  for (const element of document.body.querySelectorAll("*")) {
    const isSvg = element.namespaceURI.endsWith("svg");
    if (![...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()) || element.disabled) continue;
    const color = parse(isSvg ? getComputedStyle(element).fill : getComputedStyle(element).color);
    const backs = isSvg ? hues : [behind(element)];
    const worst = Math.min(...backs.map((back) => ratio(color, back)));
    if (worst < 4.5) found.push([element.outerHTML.slice(0, 80), worst]);
  }
  return found;
})()
"""


async def looks_right(tab: Tab, width: int) -> None:
    """Check the layout of a window of this width, and the contrast of its texts."""
    await tab.resize(width)
    # Tables get the height that they have in this width once they are painted.
    await tab.evaluate(PAINTED)
    await tab.until(f"innerWidth === {width} && !({TOO_WIDE})", WITHIN_S)
    await tab.until(f"({OUTSIDE}).length === 0", WITHIN_S)
    await tab.until(f"({SIDEWAYS}).length === 0", WITHIN_S)
    # Without an event it is infinite: the page is drawn anew.
    await tab.until(f"isFinite({EVENT_WIDTH}) && {EVENT_WIDTH} > 0.6", WITHIN_S)
    assert await tab.evaluate(PALE) == []
