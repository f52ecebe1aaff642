"""Partitions, and the tenures (assignment epochs) in which a member owns them."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Partition(NamedTuple):
    """One partition of one topic."""

    topic: str
    number: int


class Tenure(NamedTuple):
    """
    Assignment epoch of a partition, from its assignment until its revocation; deliveries and commits belong to one.

    Invariant: `number` rises with each tenure of this process. A partition that a rebalance does not move keeps its tenure.
    """

    number: int
    member_id: str
    generation: int
    incarnation: int


class Offset(NamedTuple):
    """An offset to commit: the next one to read, and the number of the tenure in which the records were delivered."""

    tenure: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def by_topic(partitions: Iterable[Partition]) -> Mapping[str, list[int]]:
    """Return the partition numbers of each topic, ascending."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


def flatten(partitions: Mapping[str, Iterable[int]]) -> frozenset[Partition]:
    """Return partition numbers by topic as a set of partitions."""
    return frozenset(Partition(topic, number) for topic, numbers in partitions.items() for number in numbers)
