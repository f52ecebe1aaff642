"""
The coordinator's program, on a disk that fails when it is told to.

    python -m tests.log.disk_server FLAGS          as `python -m rota_coordinator`

On SIGUSR2 the disk becomes what the file `disk` beside the store says; then that is said on standard error.
"""

import os
import signal
import sys
from functools import partial
from pathlib import Path

from rota_coordinator import __main__ as program
from rota_coordinator.store import sqlite
from tests.coordinator.store.disk import Disk, Fault

SETTING = "disk"


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
