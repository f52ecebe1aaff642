"""The clocks of this process, read here and given to everything else."""

import time

from rota.producer.accumulator import Clocks


def clocks() -> Clocks:
    """The time of day, and the time since some moment."""
    return Clocks(lambda: time.time_ns() // 1_000_000, time.monotonic)  # noqa: TID251  see above
