"""
What has to move so that everybody has as much as everybody else who could take it, and as little as possible.

First how many, on counts; then which ones. Where racks matter, `near_balance` does both.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from rota_sidecar.core.assignors.claims import Claims
from rota_sidecar.core.assignors.dealing import Moves, deal, give_up, shortages
from rota_sidecar.core.assignors.index import TopicClass
from rota_sidecar.core.assignors.quotas import Cell, level
from rota_sidecar.core.assignors.rack_balance import near_balance


def balance(claims: Claims) -> Moves:
    """The moves from what members have by their claims."""
    if claims.roll.racks:
        return near_balance(claims)
    roll = claims.roll
    cells = cells_of(claims)
    loads = [claims.count(member) for member in range(len(roll.ids))]
    level(cells, list(loads))
    moves = Moves()
    freed = [give_up(claims, cell, among, moves) for cell, among in zip(cells, roll.classes, strict=True)]
    for member, given_up in moves.given_up.items():
        loads[member] -= len(given_up)
    for cell, among, more in zip(cells, roll.classes, freed, strict=True):
        deal(_free(claims, among, more), shortages(cell), loads, moves)
    return moves


def cells_of(claims: Claims) -> list[Cell]:
    roll = claims.roll
    claimed = [[0] * len(each.members) for each in roll.classes]
    if len(roll.classes) == 1:
        claimed = [[claims.count(member) for member in roll.classes[0].members]]
    else:
        for member in range(len(roll.ids)):
            counts = Counter(map(roll.class_of.__getitem__, claims.topics(member)))
            for number, count in counts.items():
                claimed[number][roll.classes[number].places[member]] = count
    return [
        Cell(each.members, has, sum(len(claims.free[topic]) for topic in each.topics))
        for each, has in zip(roll.classes, claimed, strict=True)
    ]


def _free(claims: Claims, among: TopicClass, freed: Sequence[int]) -> Sequence[int]:
    """What there is to deal, ascending."""
    table = claims.roll.table
    unowned = [claims.free[topic] for topic in among.topics if len(claims.free[topic])]
    if not freed and sum(map(len, unowned)) == table.total:
        return range(table.total)
    found = array("i", chain.from_iterable(unowned))
    return array("i", sorted([*found, *freed])) if freed else found
