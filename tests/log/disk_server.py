"""
The coordinator's program, on a disk that fails when it is told to.

    python -m tests.log.disk_server FLAGS          as `python -m rota_coordinator`

On SIGUSR2 the disk becomes what the file `disk` beside the store says; then that is said on standard error.
"""

import asyncio
import os
import signal
import sys
from functools import partial
from pathlib import Path

from rota_coordinator import __main__ as program
from rota_coordinator.store import sqlite
from tests.coordinator.store.disk import Disk, Fault
from tests.support.coordinator import Coordinator

SETTING = "disk"
FAULT_S = 60
POLL_S = 0.1


async def become(coordinator: Coordinator, fault: Fault) -> None:
    """Give the disk of a running server a fault; returns when the server has said it."""
    coordinator.file.with_name(SETTING).write_text(fault.value)
    coordinator.signal(signal.SIGUSR2)
    async with asyncio.timeout(FAULT_S):
        while not coordinator.has_said(f"the disk is {fault.value}"):
            await asyncio.sleep(POLL_S)


def main() -> None:
    """Put the disk below the store, and run the program."""
    disk = Disk("told")
    folder = Path(os.environ["ROTA_STORE"].removeprefix("sqlite:")).parent

    def apply_fault(number: int, frame: object) -> None:
        disk.fault = Fault((folder / SETTING).read_text())
        sys.stderr.write(f"the disk is {disk.fault.value}\n")
        sys.stderr.flush()

    signal.signal(signal.SIGUSR2, apply_fault)
    sqlite.open_store = partial(sqlite.open_store, vfs=disk.name)
    program.main()


if __name__ == "__main__":
    main()
