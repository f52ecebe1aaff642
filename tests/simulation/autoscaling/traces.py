"""
Traces of load: records per second over time, and what else happens to the group.

A trace is a shape; `arrivals_of` draws the records of one seed from it: the shape begins a few minutes earlier or later, the rate varies
by a few percent over minutes, partitions have unequal shares, and arrivals scatter as independent ones do. All autoscalers get the same
records of a seed.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rota_sidecar.core.assignors.load_aware import LoadAwareSticky
from rota_sidecar.core.assignors.sticky import CooperativeSticky
from tests.simulation.autoscaling.figures import POD_START_S, Range

DEFAULT_STRATEGY = CooperativeSticky.name
STEP_S = 5
PARTITIONS = 12
MINUTE, HOUR = 60, 3_600
# The shape begins this much later, at most.
SHIFT_S = 300
# Slow variation of the rate: standard deviation, and the time over which it is alike.
VARIATION, VARIATION_S = 0.06, 120
# Shares of the partitions differ by this much.
SHARE_SPREAD = 0.15


@dataclass(frozen=True)
class Trace:
    """Load of a group over time."""

    name: str
    duration_s: int
    # Records per second by the time in seconds, and by a number from 0 to 1 that the seed draws.
    rate: Callable[[float, float], float]
    # Parameters and their sources.
    description: str
    # Partition 0 gets this rate in addition.
    hot_rate: Callable[[float], float] = field(default=lambda _: 0.0)
    pod_start_s: Range = POD_START_S
    # Nothing is known of the group within these times, in seconds.
    gaps_s: Sequence[tuple[float, float]] = ()
    # Assignment strategy of the group that Rota scales.
    strategy: str = DEFAULT_STRATEGY
    # Records per second that the downstream system takes of all replicas; None: no limit.
    downstream_rate: float | None = None

    def is_known(self, at_s: float) -> bool:
        """Return whether reports and offsets can be read."""
        return not any(begin <= at_s < end for begin, end in self.gaps_s)


def _between(at_s: float, begin_s: float, end_s: float, inside: float, outside: float) -> float:
    return inside if begin_s <= at_s < end_s else outside


def _ramp(at_s: float) -> float:
    """5/s to 35/s within an hour, 20 minutes there, and back."""
    rising = (at_s - 10 * MINUTE) / HOUR
    falling = (150 * MINUTE - at_s) / HOUR
    return 5 + 30 * max(0.0, min(1.0, rising, falling))


def _wave(at_s: float, day_s: float) -> float:
    """Daily wave, lowest at its begin: from 0.48 to 1.68, with a mean of 1.03."""
    # A sine raised to a power has a short peak and a long trough, as the published mean asks for.
    height = math.pow(0.5 - 0.5 * math.cos(2 * math.pi * at_s / day_s), 1.25)
    return 0.48 + 1.2 * height


def _weekly(at_s: float) -> float:
    day_s = 3 * HOUR
    return 14 * _wave(at_s, day_s) * (0.75 if at_s >= 5 * day_s else 1.0)


def _flash_crowd(at_s: float) -> float:
    begin_s, held_s, half_life_s = 30 * MINUTE, 2 * HOUR, 30 * MINUTE
    since_s = at_s - begin_s
    if since_s < 0:
        return 4
    if since_s < held_s:
        return 4 + 28 * min(1.0, since_s / MINUTE)
    return 4 + 28 * math.pow(0.5, (since_s - held_s) / half_life_s)


def _dump(at_s: float) -> float:
    since_s = (at_s - 40 * MINUTE) % (3 * HOUR)
    return 2 + _between(since_s, 0, 10 * MINUTE, 80, 0)


def _step(at_s: float) -> float:
    return _between(at_s, 30 * MINUTE, 75 * MINUTE, 24, 6)


TRACES = (
    Trace("step", 150 * MINUTE, lambda at_s, _: _step(at_s), "6/s, for 45 minutes 24/s, and 6/s again"),
    Trace("ramp", 170 * MINUTE, lambda at_s, _: _ramp(at_s), "5/s to 35/s within an hour, and back"),
    Trace(
        "daily wave",
        24 * HOUR,
        lambda at_s, _: 15 * _wave(at_s, 24 * HOUR),
        "mean 15/s, peak 1.7 times the mean and 3.5 times the trough: robustperception.io/do-you-know-your-peak-to-mean-ratio",
    ),
    Trace(
        "burst",
        3 * HOUR,
        lambda at_s, _: _between((at_s - 15 * MINUTE) % (30 * MINUTE), 0, 3 * MINUTE, 32, 8),
        "8/s, and every half hour 32/s for 3 minutes",
    ),
    Trace(
        "hot partition",
        2 * HOUR,
        lambda _at_s, _: 12,
        "12/s in all partitions; within 50 minutes one of them has 7/s more, above what a replica processes; Rota's group has "
        "`assignment.strategy: load-aware-sticky`, as its guide advises",
        hot_rate=lambda at_s: _between(at_s, 20 * MINUTE, 70 * MINUTE, 7, 0),
        strategy=LoadAwareSticky.name,
    ),
    Trace(
        "flapping",
        2 * HOUR,
        lambda at_s, drawn: _between((at_s / (MINUTE * (1 + 1.5 * drawn))) % 2, 0, 1, 8, 24),
        "8/s and 24/s in turns, each for the same time, which the seed draws from 1 to 2.5 minutes",
    ),
    Trace(
        "missing metrics",
        2 * HOUR,
        lambda at_s, _: _between(at_s, 35 * MINUTE, 80 * MINUTE, 20, 10),
        "10/s, 20/s for 45 minutes; twice nothing is known for 12 minutes, while the load rises and while it falls",
        gaps_s=((30 * MINUTE, 42 * MINUTE), (78 * MINUTE, 90 * MINUTE)),
    ),
    Trace(
        "slow-starting pods",
        150 * MINUTE,
        lambda at_s, _: _step(at_s),
        "as step; a pod starts within 60 s to 120 s",
        pod_start_s=Range(60, 120),
    ),
    Trace(
        "downstream limit",
        150 * MINUTE,
        lambda at_s, _: _between(at_s, 30 * MINUTE, 60 * MINUTE, 22, 8),
        "8/s, for 30 minutes 22/s; all replicas together can process 15/s",
        downstream_rate=15,
    ),
    Trace(
        "weekly wave",
        21 * HOUR,
        lambda at_s, _: _weekly(at_s),
        "daily waves as above, a quarter lower on two days of seven (lowest on Saturday and Sunday: "
        "thoughtsfordeletion.blogspot.com/2007/04/wikimedia-traffic-patterns.html; the quarter is assumed); a day lasts 3 hours",
    ),
    Trace(
        "flash crowd",
        5 * HOUR,
        lambda at_s, _: _flash_crowd(at_s),
        "4/s, 8 times that within a minute, for 2 hours, then half of it every 30 minutes. Published: from about 60 an hour to 2,200 "
        "(slash.dotat.org/~newton/installpics/slashdot-effect.html), from one minute to the next and for 6 hours "
        "(steevithak.com/2002/08/06/experiencing-the-slashdot-effect); 8 times is what the partitions can take",
    ),
    Trace(
        "nightly dump",
        6 * HOUR,
        lambda at_s, _: _dump(at_s),
        "2/s, and 80/s more for 10 minutes of every night, which lasts 3 hours. Published: 1 to 2/s, a dump of 110/s on average, "
        "consumers that process 5.5/s (noamtamir.github.io/cool-things/posts/how-to-deal-with-slow-consumers)",
    ),
)


def arrivals_of(trace: Trace, seed: int, shift_max_s: float = SHIFT_S) -> list[list[float]]:
    """Return the records that arrive in each step, by partition; the shape begins at most so much later."""
    chance = random.Random(f"{trace.name} {seed}")
    shares = [1 + chance.uniform(-SHARE_SPREAD, SHARE_SPREAD) for _ in range(PARTITIONS)]
    shares = [each / sum(shares) for each in shares]
    # Gaps stay where they are, and what happens in them too.
    shift_s = 0.0 if trace.gaps_s else chance.uniform(0, shift_max_s)
    drawn = chance.random()
    keep = math.exp(-STEP_S / VARIATION_S)
    renew = VARIATION * math.sqrt(1 - keep * keep)
    variation, found = 0.0, []
    for step in range(trace.duration_s // STEP_S):
        at_s = step * STEP_S - shift_s
        variation = variation * keep + chance.gauss(0, renew)
        records = STEP_S * trace.rate(at_s, drawn) * (1 + variation)
        hot = STEP_S * trace.hot_rate(at_s)
        expected = [records * share for share in shares]
        expected[0] += hot
        found.append([max(0.0, each + math.sqrt(each) * chance.gauss(0, 1)) for each in expected])
    return found
