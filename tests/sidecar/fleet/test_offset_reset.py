"""Running members set the offsets of a plan, and those of its undo, with a new life of the operator at each step."""

import asyncio
from pathlib import Path

import pytest

from tests.sidecar.fleet.reset_story import operated, replay
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
