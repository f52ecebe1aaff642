"""The page lists the autoscaler's last decisions of a group that is scaled."""

import asyncio
from pathlib import Path

import pytest

from rota_operator.overview.view import ScaleDecisionView, WorkloadView
from tests.operator.local.staged import Stage, browsing_stage

pytestmark = pytest.mark.process

GROUP = "orders"
SUMMARY = "[...document.querySelectorAll('summary')].map((each) => each.textContent).filter((each) => each.startsWith('Autoscaling'))"
ROWS = "[...document.querySelectorAll('table')].filter((each) => each.querySelector('thead').textContent.includes('explanation')).flatMap((each) => [...each.querySelectorAll('tbody tr')].map((row) => [...row.cells].slice(1).map((cell) => cell.textContent)))"


def workload(*decisions: ScaleDecisionView) -> WorkloadView:
    return WorkloadView("shop", "orders", "Deployment", GROUP, 3, 3, 0, (), decisions)


def test_decisions_of_the_autoscaler_are_listed(tmp_path: Path) -> None:
    stage = Stage(GROUP)
    held = ScaleDecisionView(stage.now_ms, 4, 4, "ChangeInterval", "<b>later</b>", dry_run=False, inputs={})
    grown = ScaleDecisionView(
        stage.now_ms, 2, 4, "LoadAboveTarget", "load", dry_run=True, inputs={"backlog": 7}
    )
    stage.workloads.append(workload(held, grown))

    async def story() -> None:
        async with browsing_stage(tmp_path, stage) as tab:
            assert await tab.evaluate(SUMMARY) == ["Autoscaling of shop/orders: ChangeInterval"]
            assert await tab.evaluate(ROWS) == [
                ["4", "ChangeInterval", "<b>later</b>"],
                ["2 → 4", "LoadAboveTarget (dry run)", "load"],
            ]

    asyncio.run(story())
