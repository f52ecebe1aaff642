"""Clocks of this process; callers pass them on, no other module reads a clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clocks:
    """Wall clock, and a monotonic clock."""

    now_ms: Callable[[], int]
    monotonic_s: Callable[[], float]


def system_clocks() -> Clocks:
    """Return the clocks of this machine."""
    return Clocks(lambda: time.time_ns() // 1_000_000, time.monotonic)  # noqa: TID251  see above
