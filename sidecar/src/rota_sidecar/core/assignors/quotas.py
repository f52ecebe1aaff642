"""
Computes the number of partitions per member by water-filling, before any partition is chosen.

A cell is a set of partitions that the same members may take: the topics of a class. Water-filling a cell gives the exact
minimum of the sum of squared loads over that cell, so each step lowers that sum, and the rounds end when no partition can move
to a member with two less. A group with equal subscriptions is one cell, and takes one step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

# Limit of rounds. A thousand members in a chain, each sharing one topic with the next, would take a thousand rounds. The result
# after this many rounds is valid, and only less balanced.
ROUNDS_MAX = 200


@dataclass(slots=True)
class Cell:
    """Counts of partitions that the same members may take."""

    # Members that may take them, and the number that each of them owns.
    members: Sequence[int]
    claimed: Sequence[int]
    # Number of partitions without an owner.
    unowned: int
    # Number that each member is to own.
    wanted: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.wanted = list(self.claimed)


def set_quotas(cells: Sequence[Cell], loads: list[int]) -> None:
    """Set `wanted` of each cell; updates `loads`, the number of partitions of each member of the group."""
    if len(cells) == 1 and cells[0].unowned:
        _fill_all(cells[0], loads)
    else:
        for cell in sorted(cells, key=_share, reverse=True):
            _fill_unowned(cell, loads)
    for _ in range(ROUNDS_MAX):
        relieved = [_rebalance_cell(cell, loads) for cell in cells]
        if not any(relieved):
            return


def _share(cell: Cell) -> float:
    return cell.unowned / len(cell.members)


def _rebalance_cell(cell: Cell, loads: list[int]) -> bool:
    """Balance a cell if the loads of two of its members differ by two or more; return True if it changed."""
    if len(cell.members) < 2:
        return False
    standing = [loads[member] for member in cell.members]
    heaviest = max((load for load, has in zip(standing, cell.wanted, strict=True) if has), default=0)
    if heaviest - min(standing) <= 1:
        return False
    _fill_all(cell, loads)
    return True


def _fill_unowned(cell: Cell, loads: list[int]) -> None:
    if not cell.unowned:
        return
    below = [loads[member] for member in cell.members]
    for position, more in enumerate(water_fill(below, cell.unowned, lambda _position, _most: False)):
        cell.wanted[position] += more
        loads[cell.members[position]] += more


def _fill_all(cell: Cell, loads: list[int]) -> None:
    below = [loads[member] - has for member, has in zip(cell.members, cell.wanted, strict=True)]
    amount = sum(cell.claimed) + cell.unowned
    cell.wanted = water_fill(below, amount, lambda position, most: cell.claimed[position] > most)
    for member, load, has in zip(cell.members, below, cell.wanted, strict=True):
        loads[member] = load + has


def water_fill(below: Sequence[int], amount: int, loses: Callable[[int, int], bool]) -> list[int]:
    """
    Return the additions that raise the lowest loads to a common level with a given amount.

    The remainder goes to members at that level, first to those that would lose a partition otherwise.
    """
    height, left = _water_level(below, amount)
    got = [height - load if load <= height else 0 for load in below]
    if left:
        submerged = [position for position, load in enumerate(below) if load <= height]
        # The sort is stable: among equal loads the first member comes first.
        submerged.sort(key=lambda position: not loses(position, got[position]))
        for position in submerged[:left]:
            got[position] += 1
    return got


def _water_level(below: Sequence[int], amount: int) -> tuple[int, int]:
    """Return the water level and the remainder."""
    ordered = sorted(below)
    sums = list(accumulate(ordered))
    # The largest number of them that are under water: raising them to the highest of them is affordable.
    low, high = 1, len(ordered)
    while low < high:
        middle = (low + high + 1) // 2
        if ordered[middle - 1] * middle - sums[middle - 1] <= amount:
            low = middle
        else:
            high = middle - 1
    return divmod(sums[low - 1] + amount, low)
