"""
Running members set the offsets of a plan, and those of its undo, with a new life of the operator at each step, and while the group changes
its assignment strategy.
"""

import asyncio
from pathlib import Path

import pytest

from tests.sidecar.fleet.reset_story import KEY, Operator, operated, replay
from tests.sidecar.fleet.stories import RECORDS
from tests.support.coordinator import Coordinator

pytestmark = pytest.mark.process


def test_dry_run_execution_and_undo_with_running_members(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def story() -> None:
        async with operated(tmp_path, f"rota://{coordinator.address}", topic) as operator:
            await replay(operator, RECORDS)

    asyncio.run(story())


# Strategy of the spec from the phase of a reset on; None: from before it.
CHANGES = (("Committing", "range"), (None, "sticky"))


def test_a_reset_and_a_change_of_strategy_at_the_same_time_are_both_finished(
    tmp_path: Path, coordinator: Coordinator, topic: str
) -> None:
    async def story() -> None:
        async with operated(tmp_path, f"rota://{coordinator.address}", topic) as operator:
            before = 0
            for number, (phase, strategy) in enumerate(CHANGES):
                await changed_and_reset(operator, phase, strategy, offset=number + 1)
                undo = operator.plan(operator.record["undoConfigMap"])
                assert undo == dict.fromkeys(range(2), (str(number + 1), str(before)))
                before = number + 1

    asyncio.run(story())


async def changed_and_reset(operator: Operator, phase: str | None, strategy: str, offset: int) -> None:
    """Reset the offsets, and change the strategy in a phase of this; return after the second round of the change."""
    operator.request(f"replay-{offset}", dry_run=False, offset=offset)
    while (operator.record.get("requestId"), operator.record.get("phase")) != (
        f"replay-{offset}",
        "Completed",
    ):
        if phase in (None, operator.record.get("phase")):
            operator.strategy = strategy
        operator.reconcile()
        await operator.step()
        assert operator.record.get("phase") not in ("Rejected", "Failed"), operator.record
    # All members offer the new strategy alone, and read.
    while operator.offered != (strategy,) or operator.groups.strategies(KEY).chosen != strategy:
        operator.changed.clear()
        await operator.changed.wait()
        operator.reconcile()
    await operator.until_owned()
    await operator.until_resumed()
