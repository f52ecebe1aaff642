"""A sidecar with its application, its coordinator and a Fleet server, and what happens to them."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.sidecar.fleet.headquarters import Headquarters, serving
from tests.support.app import App
from tests.support.coordinator import Coordinator
from tests.support.sidecar import Deliverer

RECORDS = 40

Story = Callable[[Headquarters, Deliverer, App], Coroutine[Any, Any, None]]


def run_story(
    folder: Path, coordinator: Coordinator, topic: str, story: Story, *flags: str, begins: bool = True
) -> None:
    """Run a story with all of them."""

    async def run() -> None:
        async with serving() as fleet:
            more = (f"--topics={topic}", "--commit-interval-ms=200", f"--fleet={fleet.address}", *flags)
            sidecar = Deliverer(folder, f"rota://{coordinator.address}", topic, more)
            app = App(folder, sidecar.address)
            try:
                await asyncio.to_thread(sidecar.start)
                if begins:
                    app.start()
                    await fleet.wait_until(lambda: done(fleet) == 2 * RECORDS)
                await story(fleet, sidecar, app)
            finally:
                await asyncio.to_thread(app.stop)
                await asyncio.to_thread(sidecar.close)

    asyncio.run(run())


def done(fleet: Headquarters) -> int:
    return fleet.last.member.records_done if fleet.reports else 0
