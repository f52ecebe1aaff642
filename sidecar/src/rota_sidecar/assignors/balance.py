"""
What has to move so that everybody has as much as everybody else who could take it, and as little as possible.

First how many, on counts; then which ones. Where racks matter, claims on what is far are given up beforehand, and what
is dealt goes first to members near it. What cannot be near stays with who has it.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

from rota_sidecar.assignors.claims import Claims
from rota_sidecar.assignors.dealing import Moves, deal, give_up, shortages
from rota_sidecar.assignors.near_dealing import NearDealing, far_given, without_far
from rota_sidecar.assignors.roll import TopicClass
from rota_sidecar.assignors.water import Cell, level

Deal = Callable[[Sequence[int], Cell, list[int], Moves], None]


def balance(claims: Claims) -> Moves:
    """The moves from what members have by their claims."""
    if not claims.roll.racks:
        return _balance(claims, _deal)
    near, far = without_far(claims)
    moves = _balance(near, NearDealing(near).deal)
    # Who has all there is, in balance, is left alone unless something comes nearer.
    if far_given(near, moves) >= far and _is_level(claims):
        return Moves()
    # What somebody gave up because it is far has moved like anything else.
    for flat, member in near.held.items():
        if flat not in claims.held:
            moves.given_up[member].add(flat)
    return moves


def _deal(free: Sequence[int], cell: Cell, loads: list[int], moves: Moves) -> None:
    deal(free, shortages(cell), loads, moves)


def _is_level(claims: Claims) -> bool:
    cells = cells_of(claims)
    level(cells, [claims.count(member) for member in range(len(claims.roll.ids))])
    return all(not cell.unowned and cell.wanted == cell.claimed for cell in cells)


def _balance(claims: Claims, how: Deal) -> Moves:
    roll = claims.roll
    cells = cells_of(claims)
    loads = [claims.count(member) for member in range(len(roll.ids))]
    level(cells, list(loads))
    moves = Moves()
    freed = [give_up(claims, cell, among, moves) for cell, among in zip(cells, roll.classes, strict=True)]
    for member, given_up in moves.given_up.items():
        loads[member] -= len(given_up)
    for cell, among, more in zip(cells, roll.classes, freed, strict=True):
        how(_free(claims, among, more), cell, loads, moves)
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
