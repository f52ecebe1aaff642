"""
Kafka's `range`: each topic for itself is cut into consecutive pieces, one for each who takes it.

Where racks matter, partitions go first to members near a replica, as far as everybody's share allows.
"""

from collections import defaultdict, deque
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat

from typing_extensions import override

from rota_sidecar.core.assignors.index import Roll, call_roll
from rota_sidecar.core.assignors.model import Group, Plan
from rota_sidecar.core.assignors.order import in_order
from rota_sidecar.core.assignors.racks import Racks, is_near, matters, racks_of

# The topics of one class with equally many partitions: everybody has the same piece of all of them.
Alike = tuple[int, int]


class Range:
    """Has no memory: what a member had plays no part."""

    name = "range"
    cooperative = False

    def assign(self, group: Group) -> Plan:
        roll = call_roll(group, in_order(group.members))
        alike: dict[Alike, list[str]] = defaultdict(list)
        for name, number, size in zip(roll.table.names, roll.class_of, roll.table.sizes, strict=True):
            alike[number, size].append(name)
        if _needs_racks(group, roll):
            return _near(group, roll, alike)
        key_of = {name: key for key, names in alike.items() for name in names}
        pieces: list[dict[Alike, Sequence[int]]] = [{} for _ in roll.ids]
        for number, size in alike:
            for member, piece in _cut(roll.classes[number].members, size):
                pieces[member][number, size] = piece
        return {name: Pieces(alike, key_of, pieces[member]) for member, name in enumerate(roll.ids)}


class Pieces(Mapping[str, Sequence[int]]):
    """What one member has: a piece of each of many topics, kept once for those that are alike."""

    __slots__ = ("_alike", "_key_of", "_pieces")

    def __init__(
        self,
        alike: Mapping[Alike, Sequence[str]],
        key_of: Mapping[str, Alike],
        pieces: Mapping[Alike, Sequence[int]],
    ) -> None:
        self._alike = alike
        self._key_of = key_of
        self._pieces = pieces

    @override
    def __getitem__(self, topic: str) -> Sequence[int]:
        return self._pieces[self._key_of[topic]]

    @override
    def __iter__(self) -> Iterator[str]:
        for key in self._pieces:
            yield from self._alike[key]

    @override
    def __len__(self) -> int:
        return sum(len(self._alike[key]) for key in self._pieces)

    @override
    def items(self) -> "Items":
        return Items(self)

    def alike(self) -> Iterator[tuple[Sequence[str], Sequence[int]]]:
        """Topics of which the member has the same partitions, and those."""
        return ((self._alike[key], piece) for key, piece in self._pieces.items())

    @override
    def __repr__(self) -> str:
        return f"Pieces({dict(self)})"


class Items(ItemsView[str, Sequence[int]]):
    """What `items` gives: a topic at a time, without looking it up."""

    _mapping: Pieces

    @override
    def __iter__(self) -> Iterator[tuple[str, Sequence[int]]]:
        return chain.from_iterable(zip(names, repeat(piece)) for names, piece in self._mapping.alike())


def _cut(members: Sequence[int], size: int) -> Iterator[tuple[int, range]]:
    """Consecutive pieces; the first ones have one more where it does not come out even."""
    each, more = divmod(size, len(members))
    begin = 0
    for place, member in enumerate(members):
        end = begin + each + (place < more)
        if end > begin:
            yield member, range(begin, end)
        begin = end


def _needs_racks(group: Group, roll: Roll) -> bool:
    return any(subscriber.rack for subscriber in roll.subscribers) and any(
        _topic_needs_racks(group, roll, topic) for topic in range(len(roll.table.names))
    )


def _topic_needs_racks(group: Group, roll: Roll, topic: int) -> bool:
    members = roll.classes[roll.class_of[topic]].members
    wanted = {roll.subscribers[member].rack for member in members}
    return matters(wanted, racks_of(group.topics[roll.table.names[topic]]))


class _Room:
    """One topic while it is given out."""

    def __init__(self, group: Group, roll: Roll, topic: int) -> None:
        self._subscribers = roll.subscribers
        self.members = roll.classes[roll.class_of[topic]].members
        self.racks = racks_of(group.topics[roll.table.names[topic]])
        self._each, self._more = divmod(roll.table.sizes[topic], len(self.members))
        self.free = dict.fromkeys(range(roll.table.sizes[topic]))
        self.given: dict[int, list[int]] = defaultdict(list)

    def room(self, member: int) -> int:
        return self._each + (self._more > 0) - len(self.given[member])

    def near(self, rack: str, number: int) -> bool:
        return is_near(rack, self.racks[number])

    def give(self, member: int, number: int) -> None:
        del self.free[number]
        self.given[member].append(number)
        self._more -= len(self.given[member]) == self._each + 1

    def fill(self, only_near: bool) -> None:
        """Each member in order takes the first that are free, or near."""
        # Members of one rack take theirs in ascending order: none has to look at what those before it have seen.
        left: dict[str, Iterator[int]] = {}
        for member in self.members:
            rack = self._subscribers[member].rack if only_near else ""
            if rack not in left:
                left[rack] = iter([number for number in self.free if self.near(rack, number)])
            more = self.room(member)
            while more > 0 and (number := next(left[rack], None)) is not None:
                if number in self.free:
                    self.give(member, number)
                    more -= 1


def _near(group: Group, roll: Roll, alike: Mapping[Alike, Iterable[str]]) -> Plan:
    found: list[dict[str, Sequence[int]]] = [{} for _ in roll.ids]
    for names in alike.values():
        rooms = {name: _Room(group, roll, roll.table.index[name]) for name in names}
        if len(rooms) > 1:
            _give_together(list(rooms.values()), [each.rack for each in roll.subscribers])
        elif any(_topic_needs_racks(group, roll, roll.table.index[name]) for name in rooms):
            for room in rooms.values():
                room.fill(only_near=True)
        for name, room in rooms.items():
            room.fill(only_near=False)
            for member, numbers in room.given.items():
                if numbers:
                    found[member][name] = sorted(numbers)
    return {name: found[member] for member, name in enumerate(roll.ids)}


def _give_together(rooms: Sequence[_Room], racks: Sequence[str]) -> None:
    """The same number of all topics to the first who is near all of them: who joins topics needs them together."""
    # By rack the places of those who have room in all topics, in order; the room of a member never grows again.
    waiting: dict[str, deque[int]] = defaultdict(deque)
    members = rooms[0].members
    for place, member in enumerate(members):
        waiting[racks[member]].append(place)
    near: dict[tuple[Racks, ...], list[deque[int]]] = {}
    for number in list(rooms[0].free):
        replicas = tuple(room.racks[number] for room in rooms)
        if replicas not in near:
            near[replicas] = [
                waiting[rack] for rack in waiting if all(is_near(rack, each) for each in replicas)
            ]
        first = [places[0] for places in near[replicas] if _wait(places, members, rooms)]
        if first:
            for room in rooms:
                room.give(members[min(first)], number)


def _wait(places: deque[int], members: Sequence[int], rooms: Sequence[_Room]) -> bool:
    """Drop those at the front who have no room any more; says whether a member is left."""
    while places and any(room.room(members[places[0]]) <= 0 for room in rooms):
        places.popleft()
    return bool(places)
