"""In a real browser the page shows who has what, follows the group live, and its buttons scale."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.operator.local.laptop import RECORDS, WITHIN_S, Laptop
from tests.support.chromium import Tab, browsing
from tests.support.processes import Process

pytestmark = pytest.mark.process

# Of the table of members: name, state and number of partitions of each row.
MEMBERS = """
[...document.querySelectorAll("[data-group] table")[0].querySelectorAll("tbody tr")].map(
  (row) => row.cells[0].querySelector(".swatch").nextSibling.data.trim() + " " + row.cells[1].innerText + " " + row.cells[2].querySelectorAll(".chip").length)
"""
MOMENTS = '[...document.querySelectorAll("ol.events li")].map((item) => item.dataset.kind + ": " + item.lastChild.innerText)'
PARTITIONS = """
[...document.querySelectorAll("[data-group] table")[1].querySelectorAll("tbody tr")].map(
  (row) => [...row.cells].map((cell) => cell.innerText))
"""
# Of the timeline: partitions, members of the legend and causes of rebalances.
TIMELINE = """
[document.querySelectorAll('.lane').length, [...document.querySelectorAll('.members-legend .swatch')].map((swatch) => swatch.nextSibling.data.trim()),
 [...document.querySelectorAll('.causes li')].filter((cause) => cause.textContent.includes('orders-2 left: ')).length]
"""
# By partition: the owner of the last cell, and that of the table, which is the coordinator's.
OWNERS = """
[[...document.querySelectorAll('.texts li')].map((item) => / (.*): (.*) from .* on$/.exec(' ' + item.textContent)).filter(Boolean).map(([, ...owner]) => owner),
 [...document.querySelectorAll("[data-group] table")[1].querySelectorAll("tbody tr")].map((row) => [row.cells[0].textContent, row.cells[1].querySelector(".swatch").nextSibling.data.trim()])]
"""
LAG_LINES = "[...document.querySelectorAll('.chart:first-child .plot .line, .sparkline .line')].filter((line) => line.getAttribute('d')).length"
REBALANCED = re.compile(r"rebalance: generation \d+: member orders-2 left: .+, paused ")
FEWER = "document.querySelector('[aria-label=\"remove a replica of orders\"]')"


def members(count: int, each: int) -> str:
    """Return True if exactly these members are shown, each with so many partitions."""
    rows = [f"orders-{number} Stable {each}" for number in range(count)]
    shown = "document.querySelector('[data-group] table')"
    return f"{shown} !== null && JSON.stringify({MEMBERS}) === JSON.stringify({rows})"


async def look(tab: Tab, laptop: Laptop, process: Process) -> None:
    await tab.until(members(3, 2), WITHIN_S)
    await tab.until(f"({PARTITIONS}).every((cells) => cells[4] === '0')", WITHIN_S)
    rows = await tab.evaluate(PARTITIONS)
    assert [row[0] for row in rows] == [f"orders-{number}" for number in range(6)]
    assert {row[3] for row in rows} == {str(RECORDS // 6)}
    assert "live, " in await tab.evaluate("document.getElementById('connection').innerText")
    # The runner has recorded the lag of the group and of each partition.
    await tab.until(f"{LAG_LINES} === 7", WITHIN_S)

    await tab.evaluate(f"{FEWER}.click()")
    await tab.until(members(2, 3), WITHIN_S)
    events = await tab.evaluate(MOMENTS)
    assert "scale: orders scaled from 3 to 2 replicas" in events
    assert any(map(REBALANCED.match, events)), events
    names = [f"orders-{number}" for number in range(3)]
    assert await tab.evaluate(TIMELINE) == [6, names, 1]
    await tab.evaluate("document.querySelector('details summary').click()")
    await tab.until("document.querySelector('.texts') !== null", WITHIN_S)
    cells, table = await tab.evaluate(OWNERS)
    assert cells == table
    assert len(table) == 6
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not await tab.evaluate(wide), "it has to be moved sideways"
    assert tab.errors == []

    await asyncio.to_thread(process.stop)
    await tab.until("document.getElementById('connection').className === 'bad'", WITHIN_S)
    said = await tab.evaluate("document.getElementById('connection').innerText")
    assert (
        said
        == "disconnected: the data shown is outdated; check that rota up, or kubectl rota ui, is still running"
    )


def test_the_page_follows_a_group_live(tmp_path: Path) -> None:
    laptop = Laptop(tmp_path)
    process = laptop.start()
    laptop.fill(process, RECORDS)
    process.wait_until((laptop.home / "page").exists, within_s=WITHIN_S)

    async def story() -> None:
        async with browsing(tmp_path, f"http://{laptop.page}/") as tab:
            try:
                await look(tab, laptop, process)
            finally:
                await tab.screenshot(tmp_path / "page.png")

    asyncio.run(story())
    assert process.exit_code == 0
