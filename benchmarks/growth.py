"""
Measure what growing work costs: groups, members of a group, partitions, topics by pattern, sizes of records.

The claim: costs grow no faster than the work. Groups and members are measured at the coordinator, all else at one sidecar, on the
embedded log and on a Kafka broker. The total load is the same at each size where only its distribution grows: commits over groups, records
over partitions, bytes over records. A figure stands beside that of the next smaller size, and its goal is the growth of the size
with a half added; a cost that grows faster is to be explained, or mended.

Most figures are processor time, which others on the machine disturb least. All but the members are single rounds: small amounts are near
the resolution of the system's clock, of 10 ms.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from benchmarks.peers import grown_groups, grown_sidecars, page
from benchmarks.peers.growing import Cost, Engine, engines
from benchmarks.peers.grown_sidecars import Load
from scripts.growth_section import AMOUNT_MIN

LOAD = Load(records=100_000, bytes=64_000_000, idle_s=10)
LOAD_QUICK = Load(records=2_000, bytes=2_000_000, idle_s=1)
COMMITS, COMMITS_QUICK = 20_000, 500
# How much faster than the work a cost may grow from one size to the next.
SLACK = 1.5

Measure = Callable[[int], list[Cost]]


class Sizes(NamedTuple):
    """The sizes of one part: all of them, and those of --quick."""

    whole: Sequence[int]
    quick: Sequence[int]


SIZES: Mapping[str, Sizes] = {
    "groups": Sizes((10, 100, 1_000, 10_000), (10, 50)),
    "members": Sizes((10, 50, 250, 1_000, 5_000), (10, 20)),
    "partitions": Sizes((1, 10, 100, 500, 2_000), (1, 10)),
    "topics": Sizes((1, 5, 20, 50, 200), (1, 4)),
    "sizes": Sizes((1_000, 10_000, 100_000, 1_000_000), (1_000, 100_000)),
}
ON_SIDECARS = {
    "partitions": grown_sidecars.partitions,
    "topics": grown_sidecars.topics,
    "sizes": grown_sidecars.sizes,
}


def lines(part: str, sizes: Sequence[int], measure: Measure) -> Iterator[page.Line]:
    """Measure a part at all sizes, from the smallest on, and yield a line for each cost and size."""
    before: dict[str, Cost] = {}
    smaller = 0
    for size in sizes:
        costs = measure(size)
        for cost in costs:
            yield line(part, cost, size, before.get(cost.what), smaller)
        before, smaller = {cost.what: cost for cost in costs}, size


def line(part: str, cost: Cost, size: int, before: Cost | None, smaller: int) -> page.Line:
    """Return the line of one cost, beside that of the next smaller size."""
    what = f"{part}: {cost.what}, {size:,}"
    if before is None:
        return page.Line(what, cost.text())
    ratio = max(cost.amount, AMOUNT_MIN) / max(before.amount, AMOUNT_MIN)
    goal = page.at_most(SLACK * size / smaller)
    return page.Line(what, cost.text(), f"{smaller:,}: {before.text()}", ratio, page.judged(goal, ratio))


def measures(part: str, running: Sequence[Engine], load: Load, commits: int) -> list[Measure]:
    """Return what measures a part: one function, or one for each engine."""
    if part == "groups":
        return [partial(grown_groups.groups, commits=commits)]
    if part == "members":
        return [grown_groups.members]
    return [partial(ON_SIDECARS[part], engine, load) for engine in running]


def main() -> None:
    """Run the benchmark and print its table."""
    result = page.Page(
        "growth",
        "each figure beside that of the next smaller size",
        quick="small sizes only, in about a minute",
        parts=tuple(SIZES),
    )
    load, commits = (LOAD_QUICK, COMMITS_QUICK) if result.quick else (LOAD, COMMITS)
    found: list[page.Line] = []
    with ExitStack() as stack:
        running: list[Engine] = []
        for part in result.parts:
            if part in ON_SIDECARS and not running:
                running = stack.enter_context(engines())
            sizes = SIZES[part].quick if result.quick else SIZES[part].whole
            for measure in measures(part, running, load, commits):
                found += lines(part, sizes, measure)
    result.show(found)


if __name__ == "__main__":
    main()
