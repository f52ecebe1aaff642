"""The charts of a page show 15 minutes of lag and throughput, of all partitions and of one; what is unknown is a gap in the line."""

import asyncio
from pathlib import Path

import pytest

from tests.operator.local.staged import WITHIN_S, Stage, browsing_stage

pytestmark = pytest.mark.process

GROUP = "orders"
TITLES = (
    "[...document.querySelectorAll('.chart figcaption span:first-child')].map((title) => title.innerText)"
)
# Of the chart of lag: its line, its highest value, and what it says to who does not see it.
LINE = "document.querySelector('.chart .plot .line').getAttribute('d')"
TOP = "document.querySelector('.chart .top').innerText"
LABEL = "document.querySelector('.chart .plot svg').getAttribute('aria-label')"
LEGENDS = "[...document.querySelectorAll('.chart .legend')].map((legend) => legend.innerText.trim())"
SPARKLINES = "[...document.querySelectorAll('.sparkline path')].map((path) => path.getAttribute('d').split('M').length - 1)"
CHOOSE = """
(() => {{
  const select = document.querySelector('select');
  select.focus();
  select.value = {name!r};
  select.dispatchEvent(new Event('change'));
}})()
"""


def staged() -> Stage:
    """Two partitions over 15 minutes, whose offsets the engine does not report from the fifth to the sixth minute."""
    stage = Stage(GROUP)
    for second in range(900):
        if not 300 <= second < 360:
            stage.offsets(GROUP, [1_000 + 10 * second, 1_000 + 20 * second], 40_000, stage.now_ms)
        stage.pass_time(1)
    return stage


def test_charts_show_lag_and_throughput_with_gaps(tmp_path: Path) -> None:
    stage = staged()

    async def story() -> None:
        async with browsing_stage(tmp_path, stage) as tab:
            assert await tab.evaluate(TITLES) == ["Lag", "Lag time", "Throughput"]
            points = (await tab.evaluate(LINE)).removeprefix("M").split("M")
            # From the left edge to the right one, which is the newest sample; a line before the gap and one after it.
            assert len(points) == 2, points
            assert points[0].startswith("5 ")
            assert points[1].endswith("L900 489")
            assert await tab.evaluate(TOP) == "100,000"
            assert await tab.evaluate(LABEL) == (
                "Lag over the last 15 minutes: uncommitted records 51,150 now, 78,000 at most"
            )
            assert await tab.evaluate(LEGENDS) == [
                "uncommitted records 51,150",
                "age of the oldest 1 s",
                "arrival –",
                "processing –",
            ]
            assert await tab.evaluate(SPARKLINES) == [2, 2]

            await tab.evaluate(CHOOSE.format(name="orders-1"))
            assert "committed 20/s" in await tab.evaluate(LEGENDS)
            assert (await tab.evaluate(LEGENDS))[0] == "uncommitted records 21,100"
            # Updates go on, and leave the selection where it is.
            stage.offsets(GROUP, [10_000, 20_000], 40_000, stage.now_ms)
            stage.pass_time(2)
            await tab.until(f"({LEGENDS})[0] === 'uncommitted records 20,000'", WITHIN_S)
            assert await tab.evaluate("document.activeElement.value") == "orders-1"

    asyncio.run(story())


def test_before_anything_is_known_charts_are_empty(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(GROUP)
        stage.pass_time(1)
        async with browsing_stage(tmp_path, stage) as tab:
            assert await tab.evaluate(LINE) == ""
            assert await tab.evaluate(LABEL) == (
                "Lag over the last 15 minutes: uncommitted records – now, – at most"
            )

    asyncio.run(story())
