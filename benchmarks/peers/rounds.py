"""

Rounds of a measurement on a shared machine.
Other processes slow both compared servers, but not equally. So a round with much other load is repeated, and the rounds
with the least other load count. The selection does not depend on the results.
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
# CPU cores; less other load than this is the kernel's work for the benchmark.
QUIET = 0.15


class Round(NamedTuple, Generic[Result]):
    """The result of one round, and the CPU cores that other processes used meanwhile."""

    others: float
    result: Result


class Rounds(NamedTuple, Generic[Result]):
    """Results of the rounds that count; `others` is the maximum of CPU cores that other processes used in one of them."""

    others: float
    results: list[Result]


def used_by_others_s(servers: Sequence[Server] = ()) -> float:
    """Return the CPU seconds of all processes except this one, its ended children and these servers."""
    user, nice, system, _, _, interrupts, soft, *_ = map(int, Path("/proc/stat").read_text().split()[1:11])
    used = (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")
    return used - sum(os.times()[:4]) - sum(server.processor_s() for server in servers)


async def least_disturbed(servers: Sequence[Server], one: Callable[[], Awaitable[Result]]) -> Rounds[Result]:
    """Run rounds, and return those with the least load of other processes."""
    rounds: list[Round[Result]] = []
    while len(rounds) < TRIED_MAX and sum(each.others <= QUIET for each in rounds) < COUNTED:
        began, before = time.perf_counter(), used_by_others_s(servers)
        result = await one()
        others = (used_by_others_s(servers) - before) / (time.perf_counter() - began)
        rounds.append(Round(max(others, 0.0), result))
    counted = sorted(rounds, key=lambda each: each.others)[:COUNTED]
    return Rounds(counted[-1].others, [each.result for each in counted])
