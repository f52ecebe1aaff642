"""
Dealing where racks matter: first to members near a replica, as many as at all possible, then the rest.

How many partitions with the same racks go to the members of each rack is a flow from the one to the other.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from rota_sidecar.assignors.claims import NOBODY, Claims
from rota_sidecar.assignors.dealing import Moves, deal, give, shortages
from rota_sidecar.assignors.flow import Flow
from rota_sidecar.assignors.near import Racks, is_near
from rota_sidecar.assignors.roll import Roll
from rota_sidecar.assignors.water import Cell


def _racks(roll: Roll, flat: int) -> Racks:
    topic = roll.table.topic_of(flat)
    return roll.racks[topic][flat - roll.table.offsets[topic]]


def _is_far(roll: Roll, member: int, flat: int) -> bool:
    return not is_near(roll.subscribers[member].rack, _racks(roll, flat))


def without_far(claims: Claims) -> tuple[Claims, int]:
    """The claims on what is near, and how many there were on what is far: that is free, and still held."""
    roll = claims.roll
    lists, flats, held = list(claims.lists), dict(claims.flats), dict(claims.held)
    freed: list[list[int]] = [[] for _ in claims.free]
    for member in range(len(roll.ids)):
        far = {flat for flat in claims.flat_numbers(member) if _is_far(roll, member, flat)}
        if far:
            flats[member] = [flat for flat in claims.flat_numbers(member) if flat not in far]
            lists[member] = None
            held.update(dict.fromkeys(far, member))
            for flat in far:
                freed[roll.table.topic_of(flat)].append(flat)
    free = [sorted([*old, *new]) if new else old for old, new in zip(claims.free, freed, strict=True)]
    near = replace(claims, lists=lists, flats=flats, free=free, held=held)
    return near, sum(map(len, freed))


def far_given(claims: Claims, moves: Moves) -> int:
    """How much of what is given is far from who gets it."""
    return sum(
        _is_far(claims.roll, member, flat)
        for member, parts in moves.given.items()
        for flat in chain.from_iterable(parts)
    )


class NearDealing:
    """Deals to members near a partition first, then what is left to those who have it, then the rest."""

    def __init__(self, claims: Claims) -> None:
        self._held = claims.held
        self._roll = claims.roll
        self._rack = [subscriber.rack for subscriber in claims.roll.subscribers]

    def deal(self, free: Sequence[int], cell: Cell, loads: list[int], moves: Moves) -> None:
        alike: dict[Racks, list[int]] = defaultdict(list)
        for flat in free:
            alike[_racks(self._roll, flat)].append(flat)
        # With one class it is open who has one more than others: those who have something near then, if it can be.
        extras = _take_back_extras(cell) if len(self._roll.classes) == 1 else 0
        level = min(cell.wanted, default=0)
        could = [member for member, has in zip(cell.members, cell.claimed, strict=True) if has <= level]
        flow = Flow(self._room(shortages(cell)), self._racks_of(could if extras else []), extras)
        flow.fill({racks: len(flats) for racks, flats in alike.items()})
        self._give_extras(cell, could, extras, flow)
        short = shortages(cell)
        rest = self._to_those_near(alike, flow, short, loads, moves)
        deal(self._to_those_who_have_it(rest, short, loads, moves), short, loads, moves)

    def _room(self, short: Mapping[int, int]) -> Mapping[str, int]:
        room = Counter[str]()
        for member, count in short.items():
            room[self._rack[member]] += count
        return room

    def _racks_of(self, members: Sequence[int]) -> Mapping[str, int]:
        return Counter(self._rack[member] for member in members)

    def _give_extras(self, cell: Cell, could: Sequence[int], extras: int, flow: Flow) -> None:
        if not extras:
            return
        near = {rack: flow.beyond_room(rack) for rack in self._racks_of(could)}
        chosen = set()
        for member in could:
            if near[self._rack[member]]:
                near[self._rack[member]] -= 1
                chosen.add(member)
        others = [member for member in could if member not in chosen]
        chosen.update(others[: extras - len(chosen)])
        for place, member in enumerate(cell.members):
            cell.wanted[place] += member in chosen

    def _to_those_near(
        self,
        alike: Mapping[Racks, list[int]],
        flow: Flow,
        short: dict[int, int],
        loads: list[int],
        moves: Moves,
    ) -> Sequence[int]:
        """Returns what is left."""
        begin: Counter[Racks] = Counter()
        by_rack: dict[str, list[int]] = defaultdict(list)
        for racks, rack in sorted(flow.ways, key=lambda way: (sorted(way[0]), way[1])):
            end = begin[racks] + flow.ways[racks, rack]
            by_rack[rack] += alike[racks][begin[racks] : end]
            begin[racks] = end
        for rack, flats in by_rack.items():
            those = {member: count for member, count in short.items() if self._rack[member] == rack}
            before = dict(those)
            deal(sorted(flats), those, loads, moves)
            for member in before:
                short[member] = those.get(member, 0)
                if not short[member]:
                    del short[member]
        return sorted(chain.from_iterable(flats[begin[racks] :] for racks, flats in alike.items()))

    def _to_those_who_have_it(
        self, rest: Sequence[int], short: dict[int, int], loads: list[int], moves: Moves
    ) -> Sequence[int]:
        """Returns what is left."""
        left = []
        for flat in rest:
            holder = self._held.get(flat, NOBODY)
            if holder in short:
                give([flat], holder, short, loads, moves)
            else:
                left.append(flat)
        return left


def _take_back_extras(cell: Cell) -> int:
    """Leave those who do not have it by their claims at everybody's level; says how many they were."""
    level, taken = min(cell.wanted), 0
    for place, has in enumerate(cell.claimed):
        if has <= level:
            taken += cell.wanted[place] - level
            cell.wanted[place] = level
    return taken
