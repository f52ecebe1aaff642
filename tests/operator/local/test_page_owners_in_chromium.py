"""The timeline of a page shows who had each partition at any time of the last 15 minutes, and why it moved, not by colour alone."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rota_operator.overview.view import EventKind
from tests.operator.local.staged import START_MS, WITHIN_S, Stage, browsing_stage

pytestmark = pytest.mark.process

GROUP = "orders"
# Cells by partition: left edge and width in seconds of the window, and the fill.
CELLS = """
(() => {
  const svg = document.querySelector('.cells');
  const second = svg.getAttribute('width') / 900;
  return [...svg.querySelectorAll('g')].map((lane) => [...lane.querySelectorAll('rect')].map((cell) => [
    cell.getAttribute('x') / second, cell.getAttribute('width') / second, cell.classList.contains('unowned') ? 'unowned' : cell.getAttribute('fill')]));
})()
"""
PARTITIONS = "[...document.querySelectorAll('.lane')].map((lane) => lane.title)"
SIGNS = "[...document.querySelectorAll('.cells g')].map((lane) => [...lane.querySelectorAll('text')].map((text) => text.textContent))"
LEGEND = "[...document.querySelectorAll('.members-legend li')].map((item) => item.textContent)"
LINES = "[...document.querySelectorAll('.cells path')].map((line) => line.getAttribute('d'))"
# Of resets, in seconds since the left edge.
RESETS = """
[...document.querySelectorAll('.cells path.reset')].map((line) => Number(/M([0-9]+)/.exec(line.getAttribute('d'))[1]) / document.querySelector('.cells').getAttribute('width') * 900)
"""
DASHES = "['reset', 'rebalance'].map((kind) => getComputedStyle(document.querySelector('.cells path.' + kind)).strokeDasharray)"
NUMBERS = "[...document.querySelectorAll('svg.head text')].map((text) => text.textContent)"
CAUSES = "[...document.querySelectorAll('.causes li')].map((item) => item.textContent)"
TEXTS = "[...document.querySelectorAll('.texts li')].map((item) => item.textContent)"
PATTERNS = "[...document.querySelectorAll('#patterns pattern')].map((pattern) => pattern.innerHTML)"
HUES = "[...document.querySelectorAll('#patterns rect')].map((rect) => getComputedStyle(rect).fill)"
# Of the swatches in the legend: colour and pattern.
SWATCHES = """
[...document.querySelectorAll('.members-legend .swatch')].map((swatch) => getComputedStyle(swatch)).map((style) => [style.backgroundColor, style.backgroundImage])
"""
POINT = """
(() => {
  const svg = document.querySelector('.cells'), box = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + box.width * 500 / 900, clientY: box.top + 20 }));
  return document.querySelector('output').innerText;
})()
"""
# A pixel is more than a second, and edges are rounded to it.
PRECISION_S = 1.6


def staged() -> Stage:
    """15 minutes: one member, scaled to two, one of them killed, the coordinator away for a minute, and one new member."""
    stage = Stage(GROUP)
    stage.stable(GROUP, 1, {"orders-0": [0, 1]})
    stage.pass_time(200)
    stage.preparing(GROUP, 1, ["orders-0", "orders-1"], "member orders-1-id joined")
    stage.pass_time(1)
    stage.stable(GROUP, 2, {"orders-0": [0], "orders-1": [1]}, "member orders-1-id joined")
    stage.pass_time(299)
    stage.stable(GROUP, 3, {"orders-0": [0, 1]}, "member orders-1-id left: session timeout")
    stage.pass_time(100)
    stage.dashboard.coordinator_lost(GROUP)
    stage.pass_time(60)
    stage.stable(GROUP, 3, {"orders-0": [0, 1]})
    stage.pass_time(140)
    stage.empty(GROUP)
    stage.pass_time(50)
    stage.stable(GROUP, 4, {"orders-2": [0, 1]})
    stage.pass_time(50)
    return stage


# By partition: from and to in seconds since the start, and the owner.
EXPECTED: Mapping[str, list[tuple[int, int, str]]] = {
    "orders-0": [(0, 600, "orders-0"), (660, 800, "orders-0"), (800, 850, "unowned"), (850, 900, "orders-2")],
    "orders-1": [
        (0, 201, "orders-0"),
        (201, 500, "orders-1"),
        (500, 600, "orders-0"),
        (660, 800, "orders-0"),
        (800, 850, "unowned"),
        (850, 900, "orders-2"),
    ],
}
FILLS = {
    "orders-0": "url(#sign-0)",
    "orders-1": "url(#sign-1)",
    "orders-2": "url(#sign-2)",
    "unowned": "unowned",
}


def same(shown: list[Any], expected: list[tuple[int, int, str]]) -> bool:
    """Compare cells with the history."""
    return len(shown) == len(expected) and all(
        abs(left - from_s) < PRECISION_S
        and abs(left + width - until_s) < PRECISION_S
        and fill == FILLS[owner]
        for (left, width, fill), (from_s, until_s, owner) in zip(shown, expected, strict=True)
    )


def test_cells_are_the_history_of_owners(tmp_path: Path) -> None:
    stage = staged()

    async def story() -> None:
        async with browsing_stage(tmp_path, stage) as tab:
            assert await tab.evaluate(PARTITIONS) == list(EXPECTED)
            shown = await tab.evaluate(CELLS)
            for cells, expected in zip(shown, EXPECTED.values(), strict=True):
                assert same(cells, expected), (cells, expected)
            # Each member has a letter and a pattern; who has left is in the legend as long as it is in the window.
            assert await tab.evaluate(SIGNS) == [
                ["A", "A", "none", "C"],
                ["A", "B", "A", "A", "none", "C"],
            ]
            assert await tab.evaluate(LEGEND) == ["A orders-0 (left)", "B orders-1 (left)", "C orders-2"]
            patterns = await tab.evaluate(PATTERNS)
            assert len({re.sub("class=.hue-[0-9]+.", "", each) for each in patterns}) == len(patterns) == 3

            assert len({pattern for _, pattern in await tab.evaluate(SWATCHES)}) == 3
            hues = await tab.evaluate(HUES)
            assert [hue for hue, _ in await tab.evaluate(SWATCHES)] == hues

            await tab.evaluate("document.querySelector('details summary').click()")
            await tab.until("document.querySelector('.texts') !== null", WITHIN_S)
            texts = await tab.evaluate(TEXTS)
            assert len(texts) == sum(map(len, EXPECTED.values()))
            assert [re.sub(r"\d\d:\d\d", "HH:MM", each) for each in texts[-2:]] == [
                "orders-1: unowned from HH:MM:40 to HH:MM:30",
                "orders-1: orders-2 from HH:MM:30 on",
            ]
            assert re.fullmatch(r"orders-1 at \d\d:\d\d:\d\d: orders-0", await tab.evaluate(POINT))

    asyncio.run(story())


def test_rebalances_are_lines_with_their_cause(tmp_path: Path) -> None:
    stage = staged()

    async def story() -> None:
        async with browsing_stage(tmp_path, stage) as tab:
            assert len(await tab.evaluate(LINES)) == 4
            assert await tab.evaluate(NUMBERS) == ["4", "3", "2", "1"]
            causes = [re.sub(r"\d\d:\d\d:\d\d", "TIME", each) for each in await tab.evaluate(CAUSES)]
            assert causes == [
                "rebalance 4 TIME generation 4: orders-2 joined, 2 partitions moved",
                "rebalance 3 TIME generation 3: member orders-1 left: session timeout, 1 partition moved",
                "rebalance 2 TIME generation 2: member orders-1 joined, paused 1,000 ms, 1 partition moved",
                "rebalance 1 TIME generation 1: orders-0 joined, 2 partitions moved",
            ]
            # The window moves on, and the first rebalance leaves it.
            stage.pass_time(60)
            stage.dashboard.notify()
            await tab.until(f"({LINES}).length === 3", WITHIN_S)
            first = (await tab.evaluate(CELLS))[0][0]
            assert first[0] == 0
            assert abs(first[1] - 540) < PRECISION_S

    asyncio.run(story())


def test_resets_are_lines_of_their_own_with_their_cause(tmp_path: Path) -> None:
    stage = staged()
    stage.dashboard.record_event(GROUP, EventKind.RESET, "reset of 2 partitions: done")

    async def story() -> None:
        async with browsing_stage(tmp_path, stage) as tab:
            assert await tab.evaluate(f"({LINES}).length") == 5
            (line,) = await tab.evaluate(RESETS)
            assert abs(line - 900) < PRECISION_S
            causes = await tab.evaluate(CAUSES)
            assert re.fullmatch(r"reset R \d\d:\d\d:\d\d reset of 2 partitions: done", causes[0])
            assert causes[1].startswith("rebalance 4 ")
            # The label is beside the rebalance's, or left out where there is no room.
            assert (await tab.evaluate(NUMBERS))[0] == "R"
            # A line of a reset is no rebalance's: without colours, too.
            assert await tab.evaluate(DASHES) == ["none", "2px, 2px"]

    asyncio.run(story())


def test_without_partitions_there_is_no_timeline(tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(GROUP)
        stage.pass_time(1)
        assert stage.now_ms > START_MS
        async with browsing_stage(tmp_path, stage) as tab:
            assert await tab.evaluate("document.querySelector('.timeline')") is None
            assert "no partitions yet" in await tab.evaluate("document.body.innerText")

    asyncio.run(story())
