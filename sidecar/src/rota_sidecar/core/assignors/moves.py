"""
Chooses the partitions that move, once their number per member is known.

A member above its quota releases its highest partitions by (partition, topic), so that it releases some of every topic. Free
partitions are distributed in ascending order, each one to the member with the least load at that moment, ties by id.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import chain

from rota_sidecar.core.assignors.index import TopicClass
from rota_sidecar.core.assignors.ownership import Ownership
from rota_sidecar.core.assignors.quotas import Cell


@dataclass(slots=True)
class Moves:
    """Released and received partitions by member, as flat numbers."""

    given_up: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    given: dict[int, list[Sequence[int]]] = field(default_factory=lambda: defaultdict(list))


def release_surplus(ownership: Ownership, cell: Cell, among: TopicClass, moves: Moves) -> list[int]:
    """Release the partitions above the quotas of a cell; return them."""
    freed: list[int] = []
    for member, has, wants in zip(cell.members, cell.claimed, cell.wanted, strict=True):
        if has > wants:
            highest = _highest(ownership, member, has - wants, among)
            moves.given_up[member].update(highest)
            freed += highest
    return freed


def _highest(ownership: Ownership, member: int, count: int, among: TopicClass) -> list[int]:
    """Return a member's last partitions of a class in the order of (partition, topic)."""
    table, width = ownership.group_index.table, len(ownership.group_index.table.names)
    keys = ownership.keys(member)
    if len(among.topics) < width:
        topics = frozenset(among.topics)
        keys = [key for key in keys if key % width in topics]
    chosen = [max(keys)] if count == 1 else nlargest(count, keys)
    return [table.offsets[key % width] + key // width for key in chosen]


def shortages(cell: Cell) -> dict[int, int]:
    """Return the members below their quota, with the number of missing partitions."""
    return {
        member: wants - has
        for member, has, wants in zip(cell.members, cell.claimed, cell.wanted, strict=True)
        if wants > has
    }


def distribute(free: Sequence[int], short: dict[int, int], loads: list[int], moves: Moves) -> None:
    """Distribute free partitions to members below their quota; updates `short` and `loads`."""
    waiting = sorted(short, key=lambda member: (loads[member], member), reverse=True)
    dealt, active, height = 0, list[int](), 0
    while dealt < len(free) and (active or waiting):
        if not active:
            height = loads[waiting[-1]]
        active = _activate_at(height, active, waiting, loads)
        rounds = min(short[member] for member in active)
        if waiting:
            rounds = min(rounds, loads[waiting[-1]] - height)
        width = len(active)
        end = dealt + rounds * width
        for position, member in enumerate(active):
            allot(free[dealt + position : end : width], member, short, loads, moves)
        dealt, height = end, height + rounds
        active = [member for member in active if member in short]


def allot(part: Sequence[int], member: int, short: dict[int, int], loads: list[int], moves: Moves) -> None:
    """Give partitions to one member; updates `short` and `loads`."""
    moves.given[member].append(part)
    loads[member] += len(part)
    short[member] -= len(part)
    if not short[member]:
        del short[member]


def _activate_at(height: int, active: list[int], waiting: list[int], loads: Sequence[int]) -> list[int]:
    joined = False
    while waiting and loads[waiting[-1]] <= height:
        active.append(waiting.pop())
        joined = True
    return sorted(active) if joined else active


def merged(parts: Iterable[Sequence[int]]) -> Sequence[int]:
    """Return sorted flat numbers; a single sequence is returned unchanged, for example a range."""
    several = [part for part in parts if len(part)]
    return several[0] if len(several) == 1 else sorted(chain.from_iterable(several))
