"""The clocks of this process, read here and given to everything else."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clocks:
    """The time of day, and the time since some moment."""

    now_ms: Callable[[], int]
    monotonic_s: Callable[[], float]


def system_clocks() -> Clocks:
    """Return the clocks of this machine."""
    return Clocks(lambda: time.time_ns() // 1_000_000, time.monotonic)  # noqa: TID251  see above
