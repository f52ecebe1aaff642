"""
Runs cases on real coordinators at once, and keeps what became of each.

Cases wait most of their time, and each has a group of its own; so they share coordinators and run side by side, a few
at a time, so that a busy machine does not stretch the times that they look at.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Protocol

from tests.conformance.driver import Driver, Settings
from tests.conformance.registry import Case

AT_A_TIME = 6


class RealDriver(Driver, Protocol):
    """A driver with a connection that is to be closed."""

    async def close(self) -> None: ...


def run_all(
    cases: Sequence[Case], connect: Mapping[Settings, Callable[[], RealDriver]]
) -> dict[str, BaseException | None]:
    """Run every case, each on a coordinator with the settings that it names; return the outcomes."""
    return asyncio.run(_run_all(cases, connect))


async def _run_all(
    cases: Sequence[Case], connect: Mapping[Settings, Callable[[], RealDriver]]
) -> dict[str, BaseException | None]:
    limit = asyncio.Semaphore(AT_A_TIME)
    # A case may kill the processes that it shares with the others of its settings.
    turns = {settings: asyncio.Lock() for settings in connect if settings.mortal or settings.processes > 1}

    async def run(case: Case) -> BaseException | None:
        async with turns.get(case.settings, nullcontext()), limit:
            driver = connect[case.settings]()
            try:
                await case.body(driver)
            except Exception as error:  # noqa: BLE001  it is the case's result, and raised by its test
                return error
            finally:
                await driver.close()
        return None

    results = await asyncio.gather(*map(run, cases))
    return {case.id: result for case, result in zip(cases, results, strict=True)}
