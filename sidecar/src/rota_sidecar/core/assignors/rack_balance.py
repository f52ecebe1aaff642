"""
Balance where racks matter: even first, then as many partitions as possible near, then as few moves as possible.

`balance` calls it for groups in which some members are near some partitions and not near others. Classes are evened out
as without racks; `exchanges` then decides how many partitions with the same racks each cohort gets, a cohort being the
members with one subscription in one rack; its members share that with as few moves as possible.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from rota_sidecar.core.assignors.claims import Claims
from rota_sidecar.core.assignors.dealing import Moves, deal
from rota_sidecar.core.assignors.exchanges import Exchanges, Lot
from rota_sidecar.core.assignors.index import Roll
from rota_sidecar.core.assignors.quotas import Cell, level
from rota_sidecar.core.assignors.racks import Racks, is_near


@dataclass(slots=True)
class _Cell:
    """Partitions of one class with replicas in the same racks."""

    of_class: int
    racks: Racks
    size: int = 0
    # The flat numbers of those that no member has.
    free: list[int] = field(default_factory=list)
    # How many more, or less, a member gets; members that keep their number have no entry.
    changes: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Cohort:
    """Members with one subscription in one rack."""

    rack: str
    members: list[int]


def near_balance(claims: Claims) -> Moves:
    """The moves from what members have by their claims."""
    cells, cell_of = _cells(claims)
    cohorts = _cohorts(claims.roll)
    had = [
        Counter(map(cell_of.__getitem__, claims.flat_numbers(member)))
        for member in range(len(claims.roll.ids))
    ]
    lots = _lots(claims, cells, cohorts, had)
    _exchange(lots, [cell.of_class for cell in cells], [len(cohort.members) for cohort in cohorts])
    wanted: list[dict[int, int]] = [{} for _ in cohorts]
    for number, lot in enumerate(lots):
        for cohort, count in lot.wanted.items():
            wanted[cohort][number] = count
    for each, by_cell in zip(cohorts, wanted, strict=True):
        for member, wants in zip(each.members, _shared(by_cell, [had[m] for m in each.members]), strict=True):
            for cell, count in wants.items():
                if count != had[member][cell]:
                    cells[cell].changes[member] = count - had[member][cell]
    return _moves(claims, cells, cell_of)


def _moves(claims: Claims, cells: Sequence[_Cell], cell_of: Sequence[int]) -> Moves:
    """Which partitions move, once it is decided how many of each cell."""
    moves = Moves()
    loads = [claims.count(member) for member in range(len(claims.roll.ids))]
    for number, cell in enumerate(cells):
        for member, change in cell.changes.items():
            if change < 0:
                has = [flat for flat in claims.flat_numbers(member) if cell_of[flat] == number]
                given_up = _highest(claims, has, -change)
                moves.given_up[member].update(given_up)
                loads[member] += change
                cell.free += given_up
    for cell in cells:
        short = {member: change for member, change in cell.changes.items() if change > 0}
        deal(sorted(cell.free), short, loads, moves)
    return moves


def _cells(claims: Claims) -> tuple[list[_Cell], Sequence[int]]:
    """The cells, and of each partition, by its flat number, the cell."""
    roll = claims.roll
    wanted = frozenset(subscriber.rack for subscriber in roll.subscribers)
    cells: list[_Cell] = []
    numbers: dict[tuple[int, Racks], int] = {}
    cell_of = array("i")
    for topic, of_class in enumerate(roll.class_of):
        by_racks = {}
        for racks, count in Counter(roll.racks[topic]).items():
            key = of_class, racks & wanted
            if key not in numbers:
                numbers[key] = len(cells)
                cells.append(_Cell(*key))
            by_racks[racks] = numbers[key]
            cells[numbers[key]].size += count
        cell_of.extend(map(by_racks.__getitem__, roll.racks[topic]))
    for flat in chain.from_iterable(claims.free):
        cells[cell_of[flat]].free.append(flat)
    return cells, cell_of


def _cohorts(roll: Roll) -> list[_Cohort]:
    found: dict[tuple[int, str], _Cohort] = {}
    for member, (kind, subscriber) in enumerate(zip(roll.kind_of, roll.subscribers, strict=True)):
        found.setdefault((kind, subscriber.rack), _Cohort(subscriber.rack, [])).members.append(member)
    return list(found.values())


def _lots(
    claims: Claims, cells: Sequence[_Cell], cohorts: Sequence[_Cohort], had: Sequence[Mapping[int, int]]
) -> list[Lot]:
    """What cohorts claim, and a first answer: each class even, what is free near where there is room."""
    roll = claims.roll
    by_class: list[list[int]] = [[] for _ in roll.classes]
    for number, cell in enumerate(cells):
        by_class[cell.of_class].append(number)
    counts = [
        Cell(
            each.members,
            [sum(had[member].get(number, 0) for number in of_class) for member in each.members],
            sum(len(cells[number].free) for number in of_class),
        )
        for each, of_class in zip(roll.classes, by_class, strict=True)
    ]
    level(counts, list(map(claims.count, range(len(roll.ids)))))
    cohort_of = {member: number for number, cohort in enumerate(cohorts) for member in cohort.members}
    lots: list[Lot] = [Lot(Counter(), {}, frozenset())] * len(cells)
    for count, of_class in zip(counts, by_class, strict=True):
        room: Counter[int] = Counter()
        claimed: dict[int, Counter[int]] = {number: Counter() for number in of_class}
        for member, wants in zip(count.members, count.wanted, strict=True):
            room[cohort_of[member]] += wants
            for number in claimed.keys() & had[member].keys():
                claimed[number][cohort_of[member]] += had[member][number]
        for number in of_class:
            far = frozenset(each for each in room if not is_near(cohorts[each].rack, cells[number].racks))
            lots[number] = Lot(claimed[number], dict.fromkeys(room, 0), far)
        _fill([(lots[number], cells[number].size) for number in of_class], room)
    return lots


def _exchange(lots: Sequence[Lot], classes: Sequence[int], sizes: Sequence[int]) -> None:
    """First within each class, where there is little to search; then between all of them."""
    loads = [0] * len(sizes)
    of_class: dict[int, list[Lot]] = defaultdict(list)
    for lot, number in zip(lots, classes, strict=True):
        of_class[number].append(lot)
        for cohort, count in lot.wanted.items():
            loads[cohort] += count
    for some in of_class.values():
        Exchanges(sizes, loads, some).perform()
    if len(of_class) > 1:
        Exchanges(sizes, loads, lots).perform()


def _fill(lots: Sequence[tuple[Lot, int]], room: Counter[int]) -> None:
    """Place each lot's partitions: what is near and claimed first, then what is near, then what is claimed, the rest."""
    left = [size for _, size in lots]
    for near, kept in ((True, True), (True, False), (False, True), (False, False)):
        for place, (lot, _) in enumerate(lots):
            for cohort in lot.wanted:
                if near and cohort in lot.far:
                    continue
                most = min(left[place], room[cohort])
                if kept:
                    most = min(most, lot.claimed[cohort] - lot.wanted[cohort])
                if most > 0:
                    lot.wanted[cohort] += most
                    room[cohort] -= most
                    left[place] -= most


def _shared(wanted: Mapping[int, int], had: Sequence[Mapping[int, int]]) -> list[dict[int, int]]:
    """A cohort's partitions by cell, given to its members so evenly that loads differ by one at most."""
    each, more = divmod(sum(wanted.values()), len(had))
    # Those who have more keep it. Stable: among equals the first.
    order = sorted(range(len(had)), key=lambda place: sum(had[place].values()) <= each)
    room = [each] * len(had)
    for place in order[:more]:
        room[place] += 1
    left = dict(wanted)
    found: list[dict[int, int]] = [{} for _ in had]
    for place in order:
        # Where too much is claimed of a cell, those give it up who have too much anyway.
        cells = sorted(had[place], key=lambda cell: left.get(cell, 0) - had[place][cell], reverse=True)
        for cell in cells:
            found[place][cell] = min(had[place][cell], room[place], left.get(cell, 0))
            room[place] -= found[place][cell]
            left[cell] = left.get(cell, 0) - found[place][cell]
    open_cells = [cell for cell, count in sorted(left.items(), reverse=True) if count]
    for place in order:
        while room[place]:
            cell = open_cells[-1]
            count = min(room[place], left[cell])
            found[place][cell] = found[place].get(cell, 0) + count
            room[place] -= count
            left[cell] -= count
            if not left[cell]:
                open_cells.pop()
    return found


def _highest(claims: Claims, flats: Sequence[int], count: int) -> Sequence[int]:
    """The last of some partitions in the order of (partition, topic)."""
    table = claims.roll.table

    def key(flat: int) -> tuple[int, int]:
        topic = table.topic_of(flat)
        return flat - table.offsets[topic], topic

    return sorted(flats, key=key)[-count:]
