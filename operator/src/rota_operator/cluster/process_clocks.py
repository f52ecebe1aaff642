"""Clocks of the operator's process, handed in by `__main__`."""

from collections.abc import Callable
from typing import NamedTuple


class ProcessClocks(NamedTuple):
    """Functions that read the clocks."""

    # Milliseconds since the epoch.
    wall_ms: Callable[[], int]
    # Seconds; goes on while the machine is suspended, so that a lease that has ended meanwhile is noticed.
    monotonic_s: Callable[[], float]
