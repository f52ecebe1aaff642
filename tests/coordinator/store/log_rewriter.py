"""
Appends groups of batches and compacts each of them in one step, until it is killed: `python -m tests.coordinator.store.log_rewriter FILE`.

On standard output stands a line for each step.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from rota_coordinator.core.log.batch import Row
from rota_coordinator.core.log.cleaning import Change
from rota_coordinator.store.port import LOG_SLOT
from rota_coordinator.store.sqlite import open_store
from tests.coordinator.store.log_rows import COUNT, everything, rows

GROUP = 6
SIZE = 20_000


def group_of(number: int) -> list[Row]:
    """The batches of a group as they are appended."""
    return rows(1, GROUP, SIZE, first=number * GROUP)


def compacted(number: int) -> list[Row]:
    """The rows that a step leaves of a group: each second batch, with a smaller payload."""
    return [row._replace(codec=256, payload=row.payload[: SIZE // 2]) for row in group_of(number)[1::2]]


def check(found: Sequence[Row]) -> None:
    """Assert that each group is as it was appended, or as its step leaves it."""
    groups: dict[int, list[Row]] = {}
    for row in found:
        groups.setdefault(row.header.base_offset // (GROUP * COUNT), []).append(row)
    for number, left in groups.items():
        assert left in (group_of(number), compacted(number))
    assert sorted(groups) == list(range(len(groups)))


async def write(file: Path) -> None:
    """Go on behind what the file has."""
    store = open_store(file)
    epoch, _ = await store.claim(LOG_SLOT)
    there = await everything(store, 1)
    number = there[-1].header.next_offset // (GROUP * COUNT) if there else 0
    while True:
        appended = store.append_rows(epoch, group_of(number), flush=False)
        left = {row.header.base_offset: row for row in compacted(number)}
        changes = [Change(row.header, left.get(row.header.base_offset)) for row in group_of(number)]
        rewritten = store.rewrite_rows(1, changes)
        await asyncio.gather(appended, rewritten)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        number += 1


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1])))
