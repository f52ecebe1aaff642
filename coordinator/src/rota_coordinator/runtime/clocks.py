"""The clocks of this process. `program` creates the only `Clocks` and passes its methods to all other modules."""

import time
from collections.abc import Callable

from rota_coordinator.core.instants import MonotonicMs, WallClock, WallMs

# A monotonic clock that includes suspension. macOS lacks CLOCK_BOOTTIME; its CLOCK_MONOTONIC includes suspension.
SUSPENDED_TOO = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clocks:
    """
    The wall clock and the event loop's monotonic clock, read together.

    Invariant: `wall` has the difference at the latest reading; a wall clock that is set applies from the next one.
    """

    def __init__(self, monotonic_s: Callable[[], float], wall_s: Callable[[], float]) -> None:
        """`monotonic_s` is the clock of the event loop's timers."""
        self.wall = WallClock()
        self._monotonic_s = monotonic_s
        self._wall_s = wall_s

    def monotonic_ms(self) -> MonotonicMs:
        """Return the time for measuring durations."""
        now_ms = MonotonicMs(int(self._monotonic_s() * 1000))
        self.wall.ahead_ms = int(self._wall_s() * 1000) - now_ms
        return now_ms

    def wall_ms(self) -> WallMs:
        """Return the time for timestamps."""
        return self.wall.at(self.monotonic_ms())


def wall_s() -> float:
    """Return the seconds since 1970, UTC."""
    return time.time()  # noqa: TID251  the only call; others receive this function


def elapsed_s() -> float:
    """Return the seconds since the machine started, suspension included."""
    return time.clock_gettime(SUSPENDED_TOO)


def elapsed_ms() -> int:
    """Return `elapsed_s` in milliseconds."""
    return int(elapsed_s() * 1000)
