"""
Closed-loop load: every lane keeps its requests in flight, and sends each again as soon as it is answered.

Called by the benchmarks of heartbeats and commits; lanes are streams (`rota.py`) or connections (`wire.py`).
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

WARM_S = 0.5
# Timeout, in seconds, of the requests in flight at the end.
ANSWERS_S = 30.0


@dataclass(slots=True)
class Tally:
    """Counts the responses of all lanes within the measured time, which follows the warm-up."""

    seconds: float = 0.0
    # Validates a response; raises to stop the benchmark.
    check: Callable[[bytes], object] = bytes.__len__
    latencies_s: list[float] = field(default_factory=list)
    # Number of responses, those of the warm-up included.
    answers: int = 0
    _begins: float = field(init=False)
    _ends: float = field(init=False)

    def __post_init__(self) -> None:
        self._begins = time.perf_counter() + WARM_S
        self._ends = self._begins + self.seconds

    @staticmethod
    def now() -> float:
        """Return the present time for `answered`."""
        return time.perf_counter()

    @property
    def over(self) -> bool:
        return time.perf_counter() >= self._ends

    def answered(self, sent_at: float, data: bytes) -> None:
        """Count a response."""
        self.check(data)
        self.answers += 1
        now = time.perf_counter()
        if self._begins <= now < self._ends:
            self.latencies_s.append(now - sent_at)

    @property
    def rate(self) -> float:
        """Return the responses per second."""
        return len(self.latencies_s) / self.seconds

    def quantile_ms(self, share: float) -> float:
        """Return the latency quantile at this share, in ms."""
        ordered = sorted(self.latencies_s)
        return ordered[math.ceil(share * len(ordered)) - 1] * 1000


class Lane(Protocol):
    """A stream or connection with its requests."""

    async def drive(self, tally: Tally) -> None:
        """Keep all requests in flight until the time is up."""
        ...


async def drive(lanes: Sequence[Lane], seconds: float, check: Callable[[bytes], None]) -> Tally:
    """Drive all lanes concurrently for some seconds, and return their tally."""
    tally = Tally(seconds, check)
    async with asyncio.timeout(WARM_S + seconds + ANSWERS_S):
        await asyncio.gather(*(lane.drive(tally) for lane in lanes))
    return tally
