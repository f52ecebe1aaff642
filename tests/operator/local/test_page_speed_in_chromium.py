"""A group of 200 partitions and 50 members is shown whole; how long the browser takes is printed at the end of the run."""

import asyncio
from pathlib import Path

import pytest

from tests.operator.local.large_page import GROUP, MEMBERS, OTHER, PARTITIONS, measure, shares
from tests.operator.local.staged import WITHIN_S, Stage, browsing_stage

pytestmark = pytest.mark.process

SHOWN = """
['.lane', '.members-legend li', '.sparkline'].map((what) => document.querySelectorAll(what).length)
"""


def test_a_large_group_is_shown_whole(tmp_path: Path, report: list[str]) -> None:
    async def story() -> None:
        stage = Stage(GROUP, OTHER)
        async with browsing_stage(tmp_path, stage) as tab:
            await tab.resize(1400)
            figures = await measure(tab, stage, renders_max=1, updates_max=5)
            assert await tab.evaluate(SHOWN) == [PARTITIONS, MEMBERS, PARTITIONS]
            report.append(str(figures))

    asyncio.run(story())


def test_partitions_that_are_scrolled_into_view_are_drawn(tmp_path: Path) -> None:
    drawn = "[...document.querySelectorAll('.cells g')].map((lane) => Number(/ ([0-9]+)/.exec(lane.getAttribute('transform'))[1]) / 18)"
    text = "[...document.querySelectorAll('.cells g')].every((lane) => lane.querySelector('text') !== null)"

    async def story() -> None:
        stage = Stage(GROUP)
        stage.stable(GROUP, 1, shares(0))
        stage.pass_time(60)
        async with browsing_stage(tmp_path, stage) as tab:
            assert (await tab.evaluate(drawn))[0] == 0
            await tab.evaluate("document.querySelector('.timeline').scrollTo(0, 1e6)")
            await tab.until(f"({drawn}).includes({PARTITIONS - 1})", WITHIN_S)
            assert len(await tab.evaluate(drawn)) < PARTITIONS / 2
            assert await tab.evaluate(text)
            await tab.evaluate("document.querySelector('.timeline').scrollTo(0, 0)")
            await tab.until(f"({drawn}).includes(0)", WITHIN_S)

    asyncio.run(story())
