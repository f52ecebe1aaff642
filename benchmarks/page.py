"""
Measure the processor time that the browser takes for the page of a large group.

The claim: with 200 partitions and 50 members over 15 minutes the page shows the group within 100 ms, and an event in which each
partition and each member has new values within 20 ms. It is the time of the page's own thread in Chromium, from the click or the event
to the picture. Beside it, in the same tab: the same document as HTML text, and as many texts that a plain loop replaces.
"""

import asyncio
import json
from statistics import median

from benchmarks.peers import page
from tests.operator.local.large_page import GROUP, MEMBERS, OTHER, PARTITIONS, measure, measuring
from tests.operator.local.staged import Stage, browsing_stage
from tests.support.chromium import Tab
from tests.support.workdir import workdir

ROUNDS = 5
RENDER_MS, UPDATE_MS = page.at_most(100), page.at_most(20)
PAINTED = "new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))"
KEEP = "window.kept = document.getElementById('main').innerHTML; 0"
INSERT = f"""
window.copy = document.createElement("main");
copy.innerHTML = kept;
document.body.append(copy);
{PAINTED}
"""
REPLACE = f"""
for (const cell of copy.querySelectorAll("td.number")) cell.textContent += "1";
{PAINTED}
"""
REMOVE = f"copy.remove(); {PAINTED}"


async def beside(tab: Tab) -> tuple[list[float], list[float]]:
    """Measure the same document without the page's scripts: milliseconds of rendering it, and of updating it."""
    renders: list[float] = []
    updates: list[float] = []
    await tab.evaluate(KEEP)
    await tab.evaluate(f"location.hash = {json.dumps(OTHER)}; {PAINTED}")
    for _ in range(ROUNDS):
        async with measuring(tab, renders):
            await tab.evaluate(INSERT)
        async with measuring(tab, updates):
            await tab.evaluate(REPLACE)
        await tab.evaluate(REMOVE)
    return renders, updates


async def measured() -> list[page.Line]:
    """Measure the page, and the document beside it."""
    with workdir("page") as folder:
        stage = Stage(GROUP, OTHER)
        async with browsing_stage(folder, stage) as tab:
            await tab.resize(1400)
            found = await measure(tab, stage)
            renders, updates = await beside(tab)
    return [
        page.Line("first event of a browser", f"{found.first:.0f} ms"),
        line("render", list(found.renders), renders, RENDER_MS),
        line("update", list(found.updates), updates, UPDATE_MS),
        page.Line("elements", f"{found.elements:,}"),
    ]


def line(what: str, ours: list[float], theirs: list[float], goal: page.Goal) -> page.Line:
    """Return the line of a figure; the goal is about the median."""
    return page.Line(
        what,
        f"{median(ours):.1f}, max {max(ours):.1f} ms",
        f"HTML {median(theirs):.1f}, max {max(theirs):.1f} ms",
        median(ours) / median(theirs),
        page.judged(goal, median(ours)),
    )


def main() -> None:
    """Run the benchmark and print its table."""
    result = page.Page("page", f"page of {PARTITIONS} partitions and {MEMBERS} members in Chromium; medians")
    result.show(asyncio.run(measured()))


if __name__ == "__main__":
    main()
