"""
The plan of a micro-batch: which offsets of which partitions it reads.

The source makes a plan whenever Spark asks for the latest offset; the plan is that offset, so that Spark writes it into the
checkpoint before the batch runs. `pack` divides it among tasks. The driver reads the plan of a batch id from the checkpoint, and
`current` keeps the ranges that begin at the group's (or the store's) position: a range of a replayed batch, of a partition that
moved meanwhile, or from before a seek begins elsewhere.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# (topic, partition number), as `rota.stores` has it.
Partition = tuple[str, int]


class Malformed(ValueError):
    """An offset of Spark's checkpoint that no version of this source wrote."""


class Range(NamedTuple):
    """Consecutive offsets of one partition. Invariant: start <= end."""

    topic: str
    partition: int
    # The first offset that is read.
    start: int
    # The first offset that is not read.
    end: int

    @property
    def of(self) -> Partition:
        return self.topic, self.partition

    @property
    def records(self) -> int:
        return self.end - self.start


class Plan(NamedTuple):
    """
    The offsets of one micro-batch, which is Spark's offset at its end.

    Invariant: numbers rise with each plan of a query, so that two plans with the same ranges differ: Spark takes equal offsets for
    "no new data", and would not repeat a batch that was abandoned.
    """

    number: int
    ranges: tuple[Range, ...]

    def offset(self) -> dict[str, Any]:
        """Return the plan as Spark's offset; equal plans are equal JSON texts."""
        return {"plan": self.number, "ranges": [list(each) for each in self.ranges]}


EMPTY = Plan(0, ())


def plan_of(offset: Mapping[str, Any]) -> Plan:
    """Read the plan from Spark's offset. Raises Malformed."""
    try:
        ranges = tuple(
            Range(str(topic), int(partition), int(start), int(end))
            for topic, partition, start, end in offset["ranges"]
        )
        return Plan(int(offset["plan"]), ranges)
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"the checkpoint has an offset that is not of this data source: {offset}") from error


def plan_in_log(text: str) -> Plan:
    """Read the plan from a file of the checkpoint's offset log: a version, the batch's metadata, and the source's offset."""
    lines = text.splitlines()
    try:
        offset = json.loads(lines[2])
    except (IndexError, ValueError) as error:
        raise Malformed(f"the offset log has an entry that is not of one source: {text!r}") from error
    return plan_of(offset)


def admit(available: Sequence[Range], records_max: int) -> tuple[Range, ...]:
    """
    Choose at most so many records, the same number of each partition as far as it has them.

    >>> admit([Range("t", 0, 0, 100), Range("t", 1, 5, 7)], 10)
    (Range(topic='t', partition=0, start=0, end=8), Range(topic='t', partition=1, start=5, end=7))
    """
    left = records_max
    chosen: list[Range] = []
    waiting = sorted((each for each in available if each.records > 0), key=lambda each: each.records)
    for number, each in enumerate(waiting):
        # Partitions with few records come first, and leave what they do not use to the others.
        share = min(each.records, -(-left // (len(waiting) - number)))
        left -= share
        if share:
            chosen.append(each._replace(end=each.start + share))
    return tuple(sorted(chosen))


def pack(ranges: Sequence[Range], tasks: int) -> list[tuple[Range, ...]]:
    """
    Divide ranges among at most so many tasks, so that the largest task is small. A range stays whole: its order is kept.

    >>> [[each.partition for each in task] for task in pack([Range("t", n, 0, 10 + n) for n in range(4)], 2)]
    [[0, 3], [1, 2]]
    """
    # Records and ranges of each task: ranges without records are spread too.
    loads = [(0, 0)] * max(min(tasks, len(ranges)), 0)
    filled: list[list[Range]] = [[] for _ in loads]
    for each in sorted(ranges, key=lambda each: (-each.records, each)):
        least = loads.index(min(loads))
        records, count = loads[least]
        loads[least] = (records + each.records, count + 1)
        filled[least].append(each)
    return sorted(tuple(sorted(task)) for task in filled)


def current(plan: Plan, positions: Mapping[Partition, int]) -> tuple[Range, ...]:
    """Return the ranges that begin at the position of their partition; a partition without a position is not this member's."""
    return tuple(each for each in plan.ranges if positions.get(each.of) == each.start)


def ends(ranges: Sequence[Range]) -> dict[Partition, int]:
    """Return the offsets to commit when the ranges are processed."""
    return {each.of: each.end for each in ranges}
