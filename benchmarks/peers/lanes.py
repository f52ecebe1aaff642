"""
Load in a closed circle: every lane keeps its requests open, and sends each again as soon as it is answered.

Called by the benchmarks of heartbeats and commits; lanes are streams (`rota.py`) or connections (`wire.py`).
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

WARM_S = 0.5
# What is still open at the end is answered by then.
ANSWERS_S = 30.0


@dataclass(slots=True)
class Tally:
    """Counts the answers of all lanes in a stretch of time; what comes before is for getting warm."""

    seconds: float = 0.0
    # Looks at an answer, and stops the benchmark when it is not what it should be.
    check: Callable[[bytes], object] = bytes.__len__
    latencies_s: list[float] = field(default_factory=list)
    # Those before the time included.
    answers: int = 0
    _begins: float = field(init=False)
    _ends: float = field(init=False)

    def __post_init__(self) -> None:
        self._begins = time.perf_counter() + WARM_S
        self._ends = self._begins + self.seconds

    @staticmethod
    def now() -> float:
        """A time to give to `answered`."""
        return time.perf_counter()

    @property
    def over(self) -> bool:
        return time.perf_counter() >= self._ends

    def answered(self, sent_at: float, data: bytes) -> None:
        """Count an answer."""
        self.check(data)
        self.answers += 1
        now = time.perf_counter()
        if self._begins <= now < self._ends:
            self.latencies_s.append(now - sent_at)

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.latencies_s) / self.seconds

    def quantile_ms(self, share: float) -> float:
        """The latency that this share of the answers stays below."""
        ordered = sorted(self.latencies_s)
        return ordered[math.ceil(share * len(ordered)) - 1] * 1000


class Lane(Protocol):
    """A stream or connection with its requests."""

    async def drive(self, tally: Tally) -> None:
        """Keep all requests open until time is up."""
        ...


async def drive(lanes: Sequence[Lane], seconds: float, check: Callable[[bytes], None]) -> Tally:
    """All lanes at once."""
    tally = Tally(seconds, check)
    async with asyncio.timeout(WARM_S + seconds + ANSWERS_S):
        await asyncio.gather(*(lane.drive(tally) for lane in lanes))
    return tally
