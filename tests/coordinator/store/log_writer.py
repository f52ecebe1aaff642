"""
Writes rows and group records together until it is killed: `python -m tests.coordinator.store.log_writer FILE`.

On standard output stands a number for each write that was acknowledged.
"""

import asyncio
import sys
from pathlib import Path

from rota_coordinator.store.port import LOG_SLOT
from rota_coordinator.store.sqlite import open_store
from tests.coordinator.store.log_rows import rows
from tests.coordinator.store.records import record

# How many writes wait at a time.
AT_ONCE = 4
SIZE = 3_000


async def write(file: Path) -> None:
    """Go on behind what the file has."""
    store = open_store(file)
    (log, _), (group, _) = await store.claim(LOG_SLOT), await store.claim(3)
    number = len(await store.load(3))

    async def one(number: int) -> None:
        with store.atomic():
            parts = [
                store.append(3, group, [record(number)]),
                store.append_rows(log, rows(1, 1, SIZE, first=number), flush=False),
                store.append_rows(log, rows(2, 1, SIZE, first=number), flush=False),
            ]
        await asyncio.gather(*parts)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()

    while True:
        await asyncio.gather(*(one(number + ahead) for ahead in range(AT_ONCE)))
        number += AT_ONCE


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1])))
