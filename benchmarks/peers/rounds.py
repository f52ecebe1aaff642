"""
Rounds of a measurement, on a machine that others use too.

What others do slows both of those that are compared, but not alike: so a round in which they did much is measured
again, and those in which they did least are counted. Which ones these are does not depend on what was measured.
"""

import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from benchmarks.peers.servers import Server

Result = TypeVar("Result")
COUNTED = 5
TRIED_MAX = 25
# In cores; less than that is the kernel's own work for us.
QUIET = 0.15


class Round(NamedTuple, Generic[Result]):
    """One round, and how many cores others used meanwhile."""

    others: float
    result: Result


class Rounds(NamedTuple, Generic[Result]):
    """Results of the rounds that count; `others` is the maximum of CPU cores that other processes used in one of them."""

    others: float
    results: list[Result]


def used_by_others_s(servers: Sequence[Server] = ()) -> float:
    """The time that the processors spent on anything but this process, its ended children, and these servers."""
    user, nice, system, _, _, interrupts, soft, *_ = map(int, Path("/proc/stat").read_text().split()[1:11])
    used = (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")
    return used - sum(os.times()[:4]) - sum(server.processor_s() for server in servers)


async def least_disturbed(servers: Sequence[Server], one: Callable[[], Awaitable[Result]]) -> Rounds[Result]:
    """The rounds in which others did least."""
    rounds: list[Round[Result]] = []
    while len(rounds) < TRIED_MAX and sum(each.others <= QUIET for each in rounds) < COUNTED:
        began, before = time.perf_counter(), used_by_others_s(servers)
        result = await one()
        others = (used_by_others_s(servers) - before) / (time.perf_counter() - began)
        rounds.append(Round(max(others, 0.0), result))
    counted = sorted(rounds, key=lambda each: each.others)[:COUNTED]
    return Rounds(counted[-1].others, [each.result for each in counted])
