"""Partitions, and the tenures in which a member has them."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Partition(NamedTuple):
    """One partition of one topic."""

    topic: str
    number: int


class Tenure(NamedTuple):
    """
    From when a partition was received until it is given up; every delivery and every commit belongs to one.

    `number` rises with each tenure of this process. A partition that stays through a rebalance stays in its tenure.
    """

    number: int
    member_id: str
    generation: int
    incarnation: int


class Offset(NamedTuple):
    """What to commit: the next offset to read, and the number of the tenure that the verdicts belong to."""

    tenure: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def by_topic(partitions: Iterable[Partition]) -> Mapping[str, list[int]]:
    """The numbers of each topic, in order."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


def flatten(partitions: Mapping[str, Iterable[int]]) -> frozenset[Partition]:
    """One by one."""
    return frozenset(Partition(topic, number) for topic, numbers in partitions.items() for number in numbers)
