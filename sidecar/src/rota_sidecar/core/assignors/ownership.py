"""
Resolves the members' claims of ownership: accepted claims, disputed ones, and partitions without an owner.

The claim of the newest generation wins a dispute, whatever the order of members; between two equally new ones the partition
has no owner. Claims of partitions that do not exist, and repeated claims, are ignored.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, repeat
from operator import add, mul

from rota_sidecar.core.assignors.index import GroupIndex, Table
from rota_sidecar.core.assignors.model import NO_GENERATION
from rota_sidecar.core.assignors.packed_partitions import Layout, Layouts, PackedPartitions

NO_OWNER = -1
_FLIP = bytes((1, 0)) + bytes(254)


@dataclass(frozen=True, slots=True)
class LayoutIndex:
    """A layout's topics in this group, one for each of its numbers; empty if some of its topics take no part."""

    marks: Sequence[bytearray]
    topics: Sequence[int]
    known: bool


@dataclass(slots=True)
class Ownership:
    """Owned partitions by member, and partitions without an owner by topic. Invariant: a partition has at most one owner."""

    group_index: GroupIndex
    # Members all of whose claims are accepted. The other members are in `flats`, with their accepted claims.
    lists: list[PackedPartitions | None]
    readings: Mapping[Layout, LayoutIndex]
    flats: dict[int, list[int]] = field(default_factory=dict)
    free: list[Sequence[int]] = field(default_factory=list)
    # By flat number: the owner of a partition that is to be assigned, but only after its owner has revoked it.
    held: dict[int, int] = field(default_factory=dict)

    def count(self, member: int) -> int:
        """Return the number of partitions of a member."""
        lists = self.lists[member]
        return len(self.flats.get(member, ())) if lists is None else len(lists.numbers)

    def topics(self, member: int) -> Iterable[int]:
        """Return the topic of each partition of a member."""
        lists = self.lists[member]
        if lists is not None:
            return self.readings[lists.layout].topics
        return map(self.group_index.table.topic_of, self.flats.get(member, ()))

    def flat_numbers(self, member: int) -> list[int]:
        """Return the flat numbers of a member's partitions, ascending."""
        lists = self.lists[member]
        if lists is None:
            return self.flats.get(member, [])
        offsets = map(self.group_index.table.offsets.__getitem__, self.readings[lists.layout].topics)
        return sorted(map(add, lists.numbers, offsets))

    def keys(self, member: int) -> Iterable[int]:
        """Return partition * (number of topics) + topic for each partition of a member: the order in which it keeps them."""
        table, width = self.group_index.table, len(self.group_index.table.names)
        lists = self.lists[member]
        if lists is not None:
            return map(add, map(mul, lists.numbers, repeat(width)), self.readings[lists.layout].topics)
        flats = self.flats.get(member, ())
        topics = map(table.topic_of, flats)
        return (
            (flat - table.offsets[topic]) * width + topic for flat, topic in zip(flats, topics, strict=True)
        )


def resolve_ownership(group_index: GroupIndex) -> Ownership:
    """Resolve the claims of all members."""
    return _Resolver(group_index).resolve()


class _Resolver:
    def __init__(self, group_index: GroupIndex) -> None:
        self._group_index = group_index
        self._layouts = Layouts()
        self._marks = [bytearray(size) for size in group_index.table.sizes]
        self._readings: dict[Layout, LayoutIndex] = {}
        # Layouts all of whose topics a kind subscribes to.
        self._covered_by_kind: dict[tuple[int, Layout], bool] = {}
        self._kinds = [frozenset(kind) for kind in group_index.kinds]

    def resolve(self) -> Ownership:
        lists, inexact = self._mark()
        ownership = Ownership(self._group_index, lists, self._readings)
        said = sum(len(each.numbers) for each in lists if each is not None) + sum(map(len, inexact.values()))
        if said + sum(mark.count(0) for mark in self._marks) != self._group_index.table.total:
            self._settle(ownership, inexact)
        for member, flats in inexact.items():
            self._keep_what_it_takes(ownership, member, flats)
        for flat in ownership.held:
            topic = self._group_index.table.topic_of(flat)
            self._marks[topic][flat - self._group_index.table.offsets[topic]] = 0
        ownership.free = list(map(_free, self._group_index.table.offsets, self._marks))
        return ownership

    def _mark(self) -> tuple[list[PackedPartitions | None], dict[int, list[int]]]:
        """Mark all claimed partitions. Members with claims that are not accepted are returned separately."""
        found: list[PackedPartitions | None] = []
        inexact = {}
        for member, subscriber in enumerate(self._group_index.subscribers):
            lists = self._layouts.lists(subscriber.owned) if subscriber.owned else None
            if lists is not None and not self._marked(member, lists):
                inexact[member] = self._mark_what_exists(lists)
                lists = None
            found.append(lists)
        return found, inexact

    def _marked(self, member: int, lists: PackedPartitions) -> bool:
        reading = self._reading(lists.layout)
        if not (reading.known and lists.non_negative and self._takes_all(member, lists.layout, reading)):
            return False
        try:
            # In a group without changes this loop takes most of the time.
            for mark, number in zip(reading.marks, lists.numbers):  # noqa: B905
                mark[number] = 1
        except IndexError:
            return False
        return True

    def _takes_all(self, member: int, layout: Layout, reading: LayoutIndex) -> bool:
        kind = self._group_index.kind_of[member]
        if len(self._kinds[kind]) == len(self._marks):
            return True
        if (kind, layout) not in self._covered_by_kind:
            self._covered_by_kind[kind, layout] = self._kinds[kind].issuperset(reading.topics)
        return self._covered_by_kind[kind, layout]

    def _reading(self, layout: Layout) -> LayoutIndex:
        found = self._readings.get(layout)
        if found is None:
            found = self._readings[layout] = _read(layout, self._group_index.table, self._marks)
        return found

    def _mark_what_exists(self, lists: PackedPartitions) -> list[int]:
        table, flats, begin = self._group_index.table, set[int](), 0
        for name, count in zip(lists.layout.names, lists.layout.counts, strict=True):
            topic = table.index.get(name)
            if topic is not None:
                for number in lists.numbers[begin : begin + count]:
                    if 0 <= number < table.sizes[topic]:
                        flats.add(table.offsets[topic] + number)
                        self._marks[topic][number] = 1
            begin += count
        return sorted(flats)

    def _keep_what_it_takes(self, ownership: Ownership, member: int, flats: Sequence[int]) -> None:
        takes, topic_of = self._kinds[self._group_index.kind_of[member]], self._group_index.table.topic_of
        ownership.flats[member] = []
        for flat in flats:
            if topic_of(flat) in takes:
                ownership.flats[member].append(flat)
            else:
                ownership.held[flat] = member

    def _settle(self, ownership: Ownership, inexact: dict[int, list[int]]) -> None:
        """Find partitions that several members claim, and decide their owners."""

        def said(member: int) -> list[int]:
            return inexact[member] if member in inexact else ownership.flat_numbers(member)

        members = range(len(self._group_index.ids))
        for member in members:
            once = set(said(member))
            if len(once) != len(said(member)):
                inexact[member], ownership.lists[member] = sorted(once), None
        disputed = _disputed(map(said, members), self._group_index.table.total)
        claimants: dict[int, list[int]] = {flat: [] for flat in disputed}
        for member in members:
            for flat in disputed.intersection(said(member)):
                claimants[flat].append(member)
        for member, lost in self._losses(ownership, claimants).items():
            inexact[member] = [flat for flat in said(member) if flat not in lost]
            ownership.lists[member] = None

    def _losses(self, ownership: Ownership, claimants: Mapping[int, Sequence[int]]) -> Mapping[int, set[int]]:
        """Return the rejected claims of each member; a partition that loses all claims is withheld."""
        losses: dict[int, set[int]] = defaultdict(set)
        for flat, several in claimants.items():
            holder = self._newest(several)
            if holder == NO_OWNER:
                ownership.held[flat] = NO_OWNER
            for member in several:
                if member != holder:
                    losses[member].add(flat)
        return losses

    def _newest(self, members: Sequence[int]) -> int:
        ages = [max(self._group_index.subscribers[member].generation, NO_GENERATION) for member in members]
        newest = max(ages)
        return members[ages.index(newest)] if ages.count(newest) == 1 else NO_OWNER


def _read(layout: Layout, table: Table, marks: Sequence[bytearray]) -> LayoutIndex:
    topics: Sequence[int] = list(map(table.index.get, layout.names, repeat(NO_OWNER)))
    if NO_OWNER in topics:
        return LayoutIndex((), (), known=False)
    if len(topics) != layout.size:
        topics = list(chain.from_iterable(map(repeat, topics, layout.counts)))
    return LayoutIndex(tuple(map(marks.__getitem__, topics)), array("i", topics), known=True)


def _disputed(ownership: Iterable[Iterable[int]], total: int) -> set[int]:
    """Return the partitions that occur more than once."""
    seen, found = bytearray(total), set()
    for flats in ownership:
        for flat in flats:
            if seen[flat]:
                found.add(flat)
            seen[flat] = 1
    return found


def _free(offset: int, mark: bytearray) -> Sequence[int]:
    everything = range(offset, offset + len(mark))
    match mark.count(0):
        case 0:
            return ()
        case count if count == len(mark):
            return everything
    return array("i", compress(everything, mark.translate(_FLIP)))
