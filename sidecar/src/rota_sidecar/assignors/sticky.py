"""
Members keep what they have, as far as balance allows: Kafka's `sticky` and `cooperative-sticky`, and ours by load.

Balance comes first: nobody has two more than somebody else who could take one of them. Among balanced plans the one is
taken in which members keep most.
"""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

from rota_sidecar.assignors.claims import Claims, resolve
from rota_sidecar.assignors.dealing import Moves, deal, give_up, in_order
from rota_sidecar.assignors.model import Group, Plan
from rota_sidecar.assignors.roll import TopicClass, call_roll
from rota_sidecar.assignors.share import Share
from rota_sidecar.assignors.water import Cell, level


class Sticky:
    """Everybody gives up everything, and gets most of it back."""

    name = "sticky"
    cooperative = False

    def assign(self, group: Group) -> Plan:
        claims = resolve(call_roll(group))
        return plan(claims, balance(claims), self.cooperative)


class CooperativeSticky(Sticky):
    """Everybody keeps what stays; what moves is given up in one round, and given away in the next."""

    name = "cooperative-sticky"
    cooperative = True


def balance(claims: Claims) -> Moves:
    """What has to move so that everybody has as much as everybody else who could take it."""
    roll = claims.roll
    cells = _cells(claims)
    loads = [claims.count(member) for member in range(len(roll.ids))]
    level(cells, list(loads))
    moves = Moves()
    freed = [give_up(claims, cell, among, moves) for cell, among in zip(cells, roll.classes, strict=True)]
    for member, given_up in moves.given_up.items():
        loads[member] -= len(given_up)
    for cell, among, more in zip(cells, roll.classes, freed, strict=True):
        deal(_free(claims, among, more), cell, loads, moves)
    return moves


def plan(claims: Claims, moves: Moves, cooperative: bool) -> Plan:
    """Everybody's partitions after the moves; what somebody still has is held back if it is cooperative."""
    roll = claims.roll
    held = dict(claims.held)
    for member, given_up in moves.given_up.items():
        held.update(dict.fromkeys(given_up, member))
    found: dict[str, Mapping[str, Sequence[int]]] = {}
    for member, name in enumerate(roll.ids):
        if claims.lists[member] is not None and member not in moves.given and member not in moves.given_up:
            found[name] = roll.subscribers[member].owned
            continue
        given = moves.given.get(member, [])
        if cooperative and held:
            given = [[flat for flat in part if held.get(flat, member) == member] for part in given]
        kept: Sequence[int] = claims.flat_numbers(member)
        lost = moves.given_up.get(member)
        if lost:
            kept = [flat for flat in kept if flat not in lost]
        flats = in_order([kept, *given])
        found[name] = Share(roll.table, flats if isinstance(flats, range) else array("i", flats))
    return found


def _cells(claims: Claims) -> list[Cell]:
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
