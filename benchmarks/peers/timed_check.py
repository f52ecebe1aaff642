"""
Rota's coordinator, instrumented to count the CPU time of validating batches before they are appended.

Run as a program by `servers`. The sum, in nanoseconds, is the first number of the file that FILE names.
"""

import mmap
import os
import struct
import time
from pathlib import Path

from rota_coordinator.__main__ import main
from rota_coordinator.core.log import content
from rota_coordinator.core.log.batch import Row
from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.core.log.sequences import Refused

FILE = "ROTA_BENCHMARK_CHECK_FILE"
NUMBER = struct.Struct("<q")


def spent_s(file: Path) -> float:
    """Return the total so far, in seconds."""
    (spent_ns,) = NUMBER.unpack(file.read_bytes())
    return float(spent_ns) / 1e9


def count_in(file: Path) -> None:
    """Start counting in this process."""
    file.write_bytes(NUMBER.pack(0))
    with file.open("r+b") as opened:
        shared = mmap.mmap(opened.fileno(), NUMBER.size)
    check = content.validate
    spent_ns = 0

    def timed(row: Row, config: LogConfig, *, needs_keys: bool = False) -> Refused | None:
        nonlocal spent_ns
        began_ns = time.thread_time_ns()
        refused = check(row, config, needs_keys=needs_keys)
        spent_ns += time.thread_time_ns() - began_ns
        NUMBER.pack_into(shared, 0, spent_ns)
        return refused

    content.validate = timed


if __name__ == "__main__":
    count_in(Path(os.environ[FILE]))
    main()
