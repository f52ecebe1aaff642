"""
Balances where racks matter: first even loads, then as many rack-local partitions as possible, then as few moves as possible.

`balance` calls it for groups in which members are local to some partitions and not to others. Loads of classes are computed as
without racks; `min_cost_flow` then decides how many partitions with the same racks each cohort gets, a cohort being the members
with one subscription in one rack; the members of a cohort share these with as few moves as possible.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from rota_sidecar.core.assignors.index import GroupIndex
from rota_sidecar.core.assignors.min_cost_flow import CellFlow, MinCostFlow
from rota_sidecar.core.assignors.moves import Moves, distribute
from rota_sidecar.core.assignors.ownership import Ownership
from rota_sidecar.core.assignors.quotas import Cell, set_quotas
from rota_sidecar.core.assignors.racks import Racks, is_rack_local


@dataclass(slots=True)
class _Cell:
    """Partitions of one class with replicas in the same racks."""

    of_class: int
    racks: Racks
    size: int = 0
    # Flat numbers of the partitions without an owner.
    free: list[int] = field(default_factory=list)
    # Difference of each member's number of partitions; members that keep their number have no entry.
    changes: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Cohort:
    """Members with one subscription in one rack."""

    rack: str
    members: list[int]


def rack_aware_balance(ownership: Ownership) -> Moves:
    """Return the moves from the present ownership to a balanced one."""
    cells, cell_of = _cells(ownership)
    cohorts = _cohorts(ownership.group_index)
    had = [
        Counter(map(cell_of.__getitem__, ownership.flat_numbers(member)))
        for member in range(len(ownership.group_index.ids))
    ]
    flows = _cell_flows(ownership, cells, cohorts, had)
    _minimize_cost(flows, [cell.of_class for cell in cells], [len(cohort.members) for cohort in cohorts])
    wanted: list[dict[int, int]] = [{} for _ in cohorts]
    for number, flow in enumerate(flows):
        for cohort, count in flow.wanted.items():
            wanted[cohort][number] = count
    for each, by_cell in zip(cohorts, wanted, strict=True):
        for member, wants in zip(each.members, _shared(by_cell, [had[m] for m in each.members]), strict=True):
            for cell, count in wants.items():
                if count != had[member][cell]:
                    cells[cell].changes[member] = count - had[member][cell]
    return _moves(ownership, cells, cell_of)


def _moves(ownership: Ownership, cells: Sequence[_Cell], cell_of: Sequence[int]) -> Moves:
    """Which partitions move, once it is decided how many of each cell."""
    moves = Moves()
    loads = [ownership.count(member) for member in range(len(ownership.group_index.ids))]
    for number, cell in enumerate(cells):
        for member, change in cell.changes.items():
            if change < 0:
                has = [flat for flat in ownership.flat_numbers(member) if cell_of[flat] == number]
                given_up = _highest(ownership, has, -change)
                moves.given_up[member].update(given_up)
                loads[member] += change
                cell.free += given_up
    for cell in cells:
        short = {member: change for member, change in cell.changes.items() if change > 0}
        distribute(sorted(cell.free), short, loads, moves)
    return moves


def _cells(ownership: Ownership) -> tuple[list[_Cell], Sequence[int]]:
    """The cells, and of each partition, by its flat number, the cell."""
    group_index = ownership.group_index
    wanted = frozenset(subscriber.rack for subscriber in group_index.subscribers)
    cells: list[_Cell] = []
    numbers: dict[tuple[int, Racks], int] = {}
    cell_of = array("i")
    for topic, of_class in enumerate(group_index.class_of):
        by_racks = {}
        for racks, count in Counter(group_index.racks[topic]).items():
            key = of_class, racks & wanted
            if key not in numbers:
                numbers[key] = len(cells)
                cells.append(_Cell(*key))
            by_racks[racks] = numbers[key]
            cells[numbers[key]].size += count
        cell_of.extend(map(by_racks.__getitem__, group_index.racks[topic]))
    for flat in chain.from_iterable(ownership.free):
        cells[cell_of[flat]].free.append(flat)
    return cells, cell_of


def _cohorts(group_index: GroupIndex) -> list[_Cohort]:
    found: dict[tuple[int, str], _Cohort] = {}
    for member, (kind, subscriber) in enumerate(
        zip(group_index.kind_of, group_index.subscribers, strict=True)
    ):
        found.setdefault((kind, subscriber.rack), _Cohort(subscriber.rack, [])).members.append(member)
    return list(found.values())


def _cell_flows(
    ownership: Ownership, cells: Sequence[_Cell], cohorts: Sequence[_Cohort], had: Sequence[Mapping[int, int]]
) -> list[CellFlow]:
    """Return the flows of each cell: claims, and a first solution with even classes and free partitions assigned rack-locally."""
    group_index = ownership.group_index
    by_class: list[list[int]] = [[] for _ in group_index.classes]
    for number, cell in enumerate(cells):
        by_class[cell.of_class].append(number)
    counts = [
        Cell(
            each.members,
            [sum(had[member].get(number, 0) for number in of_class) for member in each.members],
            sum(len(cells[number].free) for number in of_class),
        )
        for each, of_class in zip(group_index.classes, by_class, strict=True)
    ]
    set_quotas(counts, list(map(ownership.count, range(len(group_index.ids)))))
    cohort_of = {member: number for number, cohort in enumerate(cohorts) for member in cohort.members}
    flows: list[CellFlow] = [CellFlow(Counter(), {}, frozenset())] * len(cells)
    for count, of_class in zip(counts, by_class, strict=True):
        room: Counter[int] = Counter()
        claimed: dict[int, Counter[int]] = {number: Counter() for number in of_class}
        for member, wants in zip(count.members, count.wanted, strict=True):
            room[cohort_of[member]] += wants
            for number in claimed.keys() & had[member].keys():
                claimed[number][cohort_of[member]] += had[member][number]
        for number in of_class:
            far = frozenset(
                each for each in room if not is_rack_local(cohorts[each].rack, cells[number].racks)
            )
            flows[number] = CellFlow(claimed[number], dict.fromkeys(room, 0), far)
        _fill([(flows[number], cells[number].size) for number in of_class], room)
    return flows


def _minimize_cost(flows: Sequence[CellFlow], classes: Sequence[int], sizes: Sequence[int]) -> None:
    """First within each class, where there is little to search; then between all of them."""
    loads = [0] * len(sizes)
    of_class: dict[int, list[CellFlow]] = defaultdict(list)
    for flow, number in zip(flows, classes, strict=True):
        of_class[number].append(flow)
        for cohort, count in flow.wanted.items():
            loads[cohort] += count
    for some in of_class.values():
        MinCostFlow(sizes, loads, some).solve()
    if len(of_class) > 1:
        MinCostFlow(sizes, loads, flows).solve()


def _fill(flows: Sequence[tuple[CellFlow, int]], room: Counter[int]) -> None:
    """Place each lot's partitions: what is near and claimed first, then what is near, then what is claimed, the rest."""
    left = [size for _, size in flows]
    for rack_local, kept in ((True, True), (True, False), (False, True), (False, False)):
        for position, (flow, _) in enumerate(flows):
            for cohort in flow.wanted:
                if rack_local and cohort in flow.far:
                    continue
                most = min(left[position], room[cohort])
                if kept:
                    most = min(most, flow.claimed[cohort] - flow.wanted[cohort])
                if most > 0:
                    flow.wanted[cohort] += most
                    room[cohort] -= most
                    left[position] -= most


def _shared(wanted: Mapping[int, int], had: Sequence[Mapping[int, int]]) -> list[dict[int, int]]:
    """A cohort's partitions by cell, given to its members so evenly that loads differ by one at most."""
    each, more = divmod(sum(wanted.values()), len(had))
    # Those who have more keep it. Stable: among equals the first.
    order = sorted(range(len(had)), key=lambda position: sum(had[position].values()) <= each)
    room = [each] * len(had)
    for position in order[:more]:
        room[position] += 1
    left = dict(wanted)
    found: list[dict[int, int]] = [{} for _ in had]
    for position in order:
        # Where too much is claimed of a cell, those give it up who have too much anyway.
        cells = sorted(had[position], key=lambda cell: left.get(cell, 0) - had[position][cell], reverse=True)
        for cell in cells:
            found[position][cell] = min(had[position][cell], room[position], left.get(cell, 0))
            room[position] -= found[position][cell]
            left[cell] = left.get(cell, 0) - found[position][cell]
    open_cells = [cell for cell, count in sorted(left.items(), reverse=True) if count]
    for position in order:
        while room[position]:
            cell = open_cells[-1]
            count = min(room[position], left[cell])
            found[position][cell] = found[position].get(cell, 0) + count
            room[position] -= count
            left[cell] -= count
            if not left[cell]:
                open_cells.pop()
    return found


def _highest(ownership: Ownership, flats: Sequence[int], count: int) -> Sequence[int]:
    """The last of some partitions in the order of (partition, topic)."""
    table = ownership.group_index.table

    def key(flat: int) -> tuple[int, int]:
        topic = table.topic_of(flat)
        return flat - table.offsets[topic], topic

    return sorted(flats, key=key)[-count:]
