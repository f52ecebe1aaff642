"""
A page with 200 partitions and 50 members over 15 minutes, and the processor time that the browser takes to show it.

It is the time of the page's own thread, from the event to its picture: parsing, scripts, styles, layout, painting. What other
processes do meanwhile changes it little.
"""

import asyncio
import json
import statistics
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from typing_extensions import override

from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.operator.local.staged import WITHIN_S, Stage
from tests.support.chromium import Tab

GROUP, OTHER = "orders", "invoices"
PARTITIONS, MEMBERS = 200, 50
# In 15 minutes; each moves a fifth of the partitions.
REBALANCES = 30
# Of a benchmark; a test only shows that it works.
RENDERS, UPDATES = 5, 20
# Between two values in the 15 minutes, as samples are taken.
STEP_S = 5
# Resolved once the page shows another text of its connection, and is painted.
SHOWN_AFTER = """
new Promise((resolve) => {{
  const connection = document.getElementById("connection");
  const look = () => {{
    if (connection.textContent === {before}) return;
    observer.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => resolve(connection.textContent)));
  }};
  const observer = new MutationObserver(look);
  observer.observe(connection, {{ childList: true }});
  look();
}})
"""
LINK = """
new Promise((resolve) => {{
  addEventListener("hashchange", () => requestAnimationFrame(() => requestAnimationFrame(resolve)), {{ once: true }});
  location.hash = {group};
}})
"""


class Figures(NamedTuple):
    """Milliseconds of the page's thread."""

    # The event that brings 15 minutes, and showing the group again later.
    first: float
    renders: Sequence[float]
    # Events in which each partition and each member has new values.
    updates: Sequence[float]
    # Elements of the document.
    elements: int

    @override
    def __str__(self) -> str:
        return (
            f"page with {PARTITIONS} partitions and {MEMBERS} members, {self.elements} elements, in processor time of its "
            f"thread: first render {self.first:.0f} ms, later ones {statistics.median(self.renders):.0f} ms; "
            f"update {statistics.median(self.updates):.1f} ms, longest {max(self.updates):.1f} ms"
        )


def shares(shift: int) -> Mapping[str, Sequence[int]]:
    """Partitions of each member; another shift moves a fifth of them."""
    found: dict[str, list[int]] = {f"orders-{number}": [] for number in range(MEMBERS)}
    for number in range(PARTITIONS):
        owner = number + (shift + 4 - number % 5) // 5
        found[f"orders-{owner % MEMBERS}"].append(number)
    return found


def pass_with_values(stage: Stage, second: int, assignment: Mapping[str, Sequence[int]], step_s: int) -> None:
    """Let a step pass in which every partition and every member has new values."""
    committed = [100 * second + 3 * number for number in range(PARTITIONS)]
    stage.offsets(GROUP, committed, 200_000, stage.now_ms - 1_000 * (second % 30))
    for number, (name, numbers) in enumerate(assignment.items()):
        member = pb.MemberReport(
            state=pb.MEMBER_STATE_STABLE, generation_id=1, records_done=second * number, dead_letters=0
        )
        stage.report(GROUP, member, name, numbers)
    stage.pass_time(step_s, step_s)


def fill(stage: Stage) -> None:
    """Let 15 minutes pass."""
    for second in range(0, 900, STEP_S):
        shift = second * REBALANCES // 900
        assignment = shares(shift)
        stage.stable(GROUP, shift, assignment, f"member orders-{shift}-id joined")
        pass_with_values(stage, second, assignment, STEP_S)


@asynccontextmanager
async def measuring(tab: Tab, found: list[float]) -> AsyncIterator[None]:
    """Append the processor time that the page takes for what is done meanwhile."""
    before = (await tab.processor_s())["TaskDuration"]
    yield
    found.append(((await tab.processor_s())["TaskDuration"] - before) * 1000)


async def show(tab: Tab, stage: Stage, before: str) -> str:
    """Send an event and wait until it is painted; returns the text of the connection then."""
    stage.dashboard.notify()
    async with asyncio.timeout(WITHIN_S):
        shown: str = await tab.evaluate(SHOWN_AFTER.format(before=json.dumps(before)))
    return shown


async def measure(tab: Tab, stage: Stage, renders_max: int = RENDERS, updates_max: int = UPDATES) -> Figures:
    """Show a group of which the page knows nothing so far, other groups, the group again, and updates."""
    first: list[float] = []
    renders: list[float] = []
    updates: list[float] = []
    text = await tab.evaluate("document.getElementById('connection').textContent")
    fill(stage)
    async with measuring(tab, first):
        text = await show(tab, stage, text)
    for _ in range(renders_max):
        await tab.evaluate(LINK.format(group=json.dumps(OTHER)))
        async with measuring(tab, renders):
            await tab.evaluate(LINK.format(group=json.dumps(GROUP)))
    for second in range(900, 900 + updates_max):
        pass_with_values(stage, second, shares(REBALANCES - 1), 1)
        async with measuring(tab, updates):
            text = await show(tab, stage, text)
    elements = await tab.evaluate("document.querySelectorAll('*').length")
    return Figures(first[0], renders, updates, elements)
