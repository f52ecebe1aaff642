"""
The coordinator's program, on clocks that are set when it is told to.

    python -m tests.security.clock_server FLAGS          as `python -m rota_coordinator`

On SIGUSR2 the file `clocks` beside the store says by how many seconds the wall clock is ahead of the real one, and for how
many the machine was suspended: then the wall clock and the clock since the start of the machine went on, and the
monotonic clock stood still.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from rota_coordinator import __main__ as program

FILE = "clocks"
SET = "the clocks are set"
REAL_TIME = time.time  # noqa: TID251  it is what is replaced
REAL_CLOCK = time.clock_gettime


def main() -> None:
    """Put the clocks below the program, and run it."""
    folder = Path(os.environ["ROTA_STORE"].removeprefix("sqlite:")).parent
    ahead = {"wall_s": 0, "suspended_s": 0}

    def apply_fault(number: int, frame: object) -> None:
        ahead.update(json.loads((folder / FILE).read_text()))
        sys.stderr.write(f"{SET}: {ahead}\n")
        sys.stderr.flush()

    def clock(which: int) -> float:
        return REAL_CLOCK(which) + (ahead["suspended_s"] if which == time.CLOCK_BOOTTIME else 0)

    time.time = lambda: REAL_TIME() + ahead["wall_s"] + ahead["suspended_s"]  # noqa: TID251
    time.clock_gettime = clock
    signal.signal(signal.SIGUSR2, apply_fault)
    program.main()


if __name__ == "__main__":
    main()
