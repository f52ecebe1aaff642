"""
Kafka's `range`: splits each topic into consecutive ranges of partitions, one for each subscriber.

Where racks matter, partitions are assigned first to members in the rack of a replica, within each member's share.
"""

from collections import defaultdict, deque
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat

from typing_extensions import override

from rota_sidecar.core.assignors.index import GroupIndex, index_group
from rota_sidecar.core.assignors.model import Group, Plan
from rota_sidecar.core.assignors.order import member_order
from rota_sidecar.core.assignors.racks import Racks, is_rack_local, racks_matter, racks_of

# Class and partition count of topics: each member has the same range of all topics of one shape.
TopicShape = tuple[int, int]


class Range:
    """Assignor that ignores earlier assignments."""

    name = "range"
    cooperative = False

    def assign(self, group: Group) -> Plan:
        group_index = index_group(group, member_order(group.members))
        by_shape: dict[TopicShape, list[str]] = defaultdict(list)
        for name, number, size in zip(
            group_index.table.names, group_index.class_of, group_index.table.sizes, strict=True
        ):
            by_shape[number, size].append(name)
        if _needs_racks(group, group_index):
            return _rack_aware(group, group_index, by_shape)
        key_of = {name: key for key, names in by_shape.items() for name in names}
        ranges: list[dict[TopicShape, Sequence[int]]] = [{} for _ in group_index.ids]
        for number, size in by_shape:
            for member, partitions in _cut(group_index.classes[number].members, size):
                ranges[member][number, size] = partitions
        return {
            name: RangeAssignment(by_shape, key_of, ranges[member])
            for member, name in enumerate(group_index.ids)
        }


class RangeAssignment(Mapping[str, Sequence[int]]):
    """Assignment of one member: one range for all topics of a shape."""

    __slots__ = ("_by_shape", "_key_of", "_ranges")

    def __init__(
        self,
        by_shape: Mapping[TopicShape, Sequence[str]],
        key_of: Mapping[str, TopicShape],
        ranges: Mapping[TopicShape, Sequence[int]],
    ) -> None:
        self._by_shape = by_shape
        self._key_of = key_of
        self._ranges = ranges

    @override
    def __getitem__(self, topic: str) -> Sequence[int]:
        return self._ranges[self._key_of[topic]]

    @override
    def __iter__(self) -> Iterator[str]:
        for key in self._ranges:
            yield from self._by_shape[key]

    @override
    def __len__(self) -> int:
        return sum(len(self._by_shape[key]) for key in self._ranges)

    @override
    def items(self) -> "RangeAssignmentItems":
        return RangeAssignmentItems(self)

    def by_shape(self) -> Iterator[tuple[Sequence[str], Sequence[int]]]:
        """Yield topics of which the member has the same partitions, with these partitions."""
        return ((self._by_shape[key], partitions) for key, partitions in self._ranges.items())

    @override
    def __repr__(self) -> str:
        return f"RangeAssignment({dict(self)})"


class RangeAssignmentItems(ItemsView[str, Sequence[int]]):
    """Items of a RangeAssignment, yielded without a lookup per topic."""

    _mapping: RangeAssignment

    @override
    def __iter__(self) -> Iterator[tuple[str, Sequence[int]]]:
        return chain.from_iterable(
            zip(names, repeat(partitions)) for names, partitions in self._mapping.by_shape()
        )


def _cut(members: Sequence[int], size: int) -> Iterator[tuple[int, range]]:
    """Yield consecutive ranges; the first ones have one more partition if the division has a remainder."""
    each, more = divmod(size, len(members))
    begin = 0
    for position, member in enumerate(members):
        end = begin + each + (position < more)
        if end > begin:
            yield member, range(begin, end)
        begin = end


def _needs_racks(group: Group, group_index: GroupIndex) -> bool:
    return any(subscriber.rack for subscriber in group_index.subscribers) and any(
        _topic_needs_racks(group, group_index, topic) for topic in range(len(group_index.table.names))
    )


def _topic_needs_racks(group: Group, group_index: GroupIndex, topic: int) -> bool:
    members = group_index.classes[group_index.class_of[topic]].members
    wanted = {group_index.subscribers[member].rack for member in members}
    return racks_matter(wanted, racks_of(group.topics[group_index.table.names[topic]]))


class _TopicAllocation:
    """One topic while its partitions are assigned. Invariant: `free` and `given` are disjoint and cover the topic."""

    def __init__(self, group: Group, group_index: GroupIndex, topic: int) -> None:
        self._subscribers = group_index.subscribers
        self.members = group_index.classes[group_index.class_of[topic]].members
        self.racks = racks_of(group.topics[group_index.table.names[topic]])
        self._each, self._more = divmod(group_index.table.sizes[topic], len(self.members))
        self.free = dict.fromkeys(range(group_index.table.sizes[topic]))
        self.given: dict[int, list[int]] = defaultdict(list)

    def room(self, member: int) -> int:
        return self._each + (self._more > 0) - len(self.given[member])

    def rack_local(self, rack: str, number: int) -> bool:
        return is_rack_local(rack, self.racks[number])

    def give(self, member: int, number: int) -> None:
        del self.free[number]
        self.given[member].append(number)
        self._more -= len(self.given[member]) == self._each + 1

    def fill(self, rack_local_only: bool) -> None:
        """Give each member, in order, the first free partitions up to its share; only rack-local ones if `rack_local_only`."""
        # Members of one rack share an iterator, because partitions that an earlier one skipped are not free.
        left: dict[str, Iterator[int]] = {}
        for member in self.members:
            rack = self._subscribers[member].rack if rack_local_only else ""
            if rack not in left:
                left[rack] = iter([number for number in self.free if self.rack_local(rack, number)])
            more = self.room(member)
            while more > 0 and (number := next(left[rack], None)) is not None:
                if number in self.free:
                    self.give(member, number)
                    more -= 1


def _rack_aware(group: Group, group_index: GroupIndex, by_shape: Mapping[TopicShape, Iterable[str]]) -> Plan:
    found: list[dict[str, Sequence[int]]] = [{} for _ in group_index.ids]
    for names in by_shape.values():
        rooms = {name: _TopicAllocation(group, group_index, group_index.table.index[name]) for name in names}
        if len(rooms) > 1:
            _allot_copartitioned(list(rooms.values()), [each.rack for each in group_index.subscribers])
        elif any(_topic_needs_racks(group, group_index, group_index.table.index[name]) for name in rooms):
            for room in rooms.values():
                room.fill(rack_local_only=True)
        for name, room in rooms.items():
            room.fill(rack_local_only=False)
            for member, numbers in room.given.items():
                if numbers:
                    found[member][name] = sorted(numbers)
    return {name: found[member] for member, name in enumerate(group_index.ids)}


def _allot_copartitioned(rooms: Sequence[_TopicAllocation], racks: Sequence[str]) -> None:
    """Assign the same number of all topics to the first member that is local to all of them, as co-partitioned topics need."""
    # By rack: positions of the members below their share in all topics, in order. A member at its share stays there.
    waiting: dict[str, deque[int]] = defaultdict(deque)
    members = rooms[0].members
    for position, member in enumerate(members):
        waiting[racks[member]].append(position)
    rack_local: dict[tuple[Racks, ...], list[deque[int]]] = {}
    for number in list(rooms[0].free):
        replicas = tuple(room.racks[number] for room in rooms)
        if replicas not in rack_local:
            rack_local[replicas] = [
                waiting[rack] for rack in waiting if all(is_rack_local(rack, each) for each in replicas)
            ]
        first = [positions[0] for positions in rack_local[replicas] if _wait(positions, members, rooms)]
        if first:
            for room in rooms:
                room.give(members[min(first)], number)


def _wait(positions: deque[int], members: Sequence[int], rooms: Sequence[_TopicAllocation]) -> bool:
    """Drop members at the front that have reached their share; return True if a member is left."""
    while positions and any(room.room(members[positions[0]]) <= 0 for room in rooms):
        positions.popleft()
    return bool(positions)
