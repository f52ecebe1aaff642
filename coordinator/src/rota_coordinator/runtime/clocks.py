"""Reads the clocks of this process. `program` makes the one `Clocks` and gives its readings to everything else."""

import time
from collections.abc import Callable

from rota_coordinator.core.instants import MonotonicMs, WallClock, WallMs

# It goes on while the machine is suspended. macOS has no such name, and its CLOCK_MONOTONIC goes on.
SUSPENDED_TOO = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clocks:
    """
    The wall clock and the event loop's monotonic clock, read together.

    Invariant: `wall` is as far ahead as it was at the latest reading, so a clock that is set counts from the next decision.
    """

    def __init__(self, monotonic_s: Callable[[], float], wall_s: Callable[[], float]) -> None:
        """`monotonic_s` is the clock of the loop's timers."""
        self.wall = WallClock()
        self._monotonic_s = monotonic_s
        self._wall_s = wall_s

    def monotonic_ms(self) -> MonotonicMs:
        """Return the time for durations."""
        now_ms = MonotonicMs(int(self._monotonic_s() * 1000))
        self.wall.ahead_ms = int(self._wall_s() * 1000) - now_ms
        return now_ms

    def wall_ms(self) -> WallMs:
        """Return the time for timestamps."""
        return self.wall.at(self.monotonic_ms())


def wall_s() -> float:
    """Return the seconds since 1970, UTC."""
    return time.time()  # noqa: TID251  given to all who need it from here


def elapsed_s() -> float:
    """Return the seconds since the machine started, those in which it was suspended included."""
    return time.clock_gettime(SUSPENDED_TOO)


def elapsed_ms() -> int:
    """Return `elapsed_s` in milliseconds."""
    return int(elapsed_s() * 1000)
