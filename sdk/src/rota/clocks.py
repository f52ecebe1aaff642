"""
Clocks of this process. `Producer`, `Consumer`, `Topics` and `run` read them here and pass them on.

Other code takes a clock as an argument, so that a test can give it a time of its own.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clocks:
    """Wall time for the timestamps of records; monotonic time for every deadline and duration."""

    # Milliseconds since the epoch; jumps when the machine's clock is set.
    wall_ms: Callable[[], int]
    # Seconds since an arbitrary moment; never goes back.
    monotonic_s: Callable[[], float]


def system_clocks() -> Clocks:
    """Return the clocks of the operating system."""
    return Clocks(lambda: time.time_ns() // 1_000_000, time.monotonic)  # noqa: TID251  see above
