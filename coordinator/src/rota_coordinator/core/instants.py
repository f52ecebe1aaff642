"""
Instants of the two clocks as types that cannot be mixed, and the conversion between them.

Durations (sessions, rebalances, transaction timeouts) are measured on the monotonic clock, which is never set.
Timestamps (of records, commits and states, and retention) come from the wall clock. `clocks` reads both; the cores
convert with the `WallClock` that they are constructed with.
"""

from dataclasses import dataclass
from typing import NewType

# Milliseconds since an arbitrary moment, on a clock that is never set; comparable within one process only.
MonotonicMs = NewType("MonotonicMs", int)
# Milliseconds since 1970, UTC, on a clock that may be set forward and back.
WallMs = NewType("WallMs", int)


@dataclass(slots=True)
class WallClock:
    """Invariant: `ahead_ms` is the wall clock minus the monotonic clock, as both were last read."""

    ahead_ms: int = 0

    def at(self, monotonic_ms: MonotonicMs) -> WallMs:
        """Return the wall-clock time of a moment on the monotonic clock."""
        return WallMs(monotonic_ms + self.ahead_ms)

    def monotonic(self, wall_ms: WallMs) -> MonotonicMs:
        """Return the moment on the monotonic clock that has this wall-clock time."""
        return MonotonicMs(wall_ms - self.ahead_ms)
