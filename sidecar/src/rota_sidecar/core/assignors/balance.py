"""
Computes the moves that balance the members' loads with as few moved partitions as possible.

First the number of partitions per member (`quotas`), then which partitions move (`moves`). Where racks matter,
`rack_aware_balance` does both.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from rota_sidecar.core.assignors.index import TopicClass
from rota_sidecar.core.assignors.moves import Moves, distribute, release_surplus, shortages
from rota_sidecar.core.assignors.ownership import Ownership
from rota_sidecar.core.assignors.quotas import Cell, set_quotas
from rota_sidecar.core.assignors.rack_balance import rack_aware_balance


def balance(ownership: Ownership) -> Moves:
    """Return the moves from the present ownership to a balanced one."""
    if ownership.group_index.racks:
        return rack_aware_balance(ownership)
    group_index = ownership.group_index
    cells = cells_of(ownership)
    loads = [ownership.count(member) for member in range(len(group_index.ids))]
    set_quotas(cells, list(loads))
    moves = Moves()
    freed = [
        release_surplus(ownership, cell, among, moves)
        for cell, among in zip(cells, group_index.classes, strict=True)
    ]
    for member, given_up in moves.given_up.items():
        loads[member] -= len(given_up)
    for cell, among, more in zip(cells, group_index.classes, freed, strict=True):
        distribute(_free(ownership, among, more), shortages(cell), loads, moves)
    return moves


def cells_of(ownership: Ownership) -> list[Cell]:
    group_index = ownership.group_index
    claimed = [[0] * len(each.members) for each in group_index.classes]
    if len(group_index.classes) == 1:
        claimed = [[ownership.count(member) for member in group_index.classes[0].members]]
    else:
        for member in range(len(group_index.ids)):
            counts = Counter(map(group_index.class_of.__getitem__, ownership.topics(member)))
            for number, count in counts.items():
                claimed[number][group_index.classes[number].positions[member]] = count
    return [
        Cell(each.members, has, sum(len(ownership.free[topic]) for topic in each.topics))
        for each, has in zip(group_index.classes, claimed, strict=True)
    ]


def _free(ownership: Ownership, among: TopicClass, freed: Sequence[int]) -> Sequence[int]:
    """Return the partitions of a class without an owner, ascending."""
    table = ownership.group_index.table
    unowned = [ownership.free[topic] for topic in among.topics if len(ownership.free[topic])]
    if not freed and sum(map(len, unowned)) == table.total:
        return range(table.total)
    found = array("i", chain.from_iterable(unowned))
    return array("i", sorted([*found, *freed])) if freed else found
