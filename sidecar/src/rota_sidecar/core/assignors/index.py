"""
Index of a group: members and topics by their position in sorted order, partitions numbered consecutively (flat numbers).

Equal subscriptions are one kind, topics with the same subscribers one class. A class is balanced as if it were one topic, so
the work depends on the number of different subscriptions, and hardly on the number of partitions.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import sub

from rota_sidecar.core.assignors.model import Group, Subscriber
from rota_sidecar.core.assignors.racks import Racks, racks_matter, racks_of


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics in sorted order, shared by the members that have one partition of each of them."""

    names: tuple[str, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    smallest: int
    # Distance of neighbouring offsets, where it is the same for all; else 0.
    stride: int


class Table:
    """Topics that have subscribers and partitions. Partition p of topic t has the flat number offsets[t] + p."""

    __slots__ = ("_singles", "index", "latest", "names", "offsets", "sizes", "total")

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.names = tuple(sorted(sizes))
        self.sizes = tuple(sizes[name] for name in self.names)
        self.offsets = tuple(accumulate(self.sizes, initial=0))
        self.total = self.offsets[-1]
        self.index = {name: number for number, name in enumerate(self.names)}
        # Topics of the last encoded member, if it has one partition of each.
        self.latest: Topics | None = None
        self._singles: list[tuple[int]] = []

    @property
    def singles(self) -> Sequence[tuple[int]]:
        """One-element tuples by partition number, shared by all members."""
        if not self._singles:
            self._singles = [(number,) for number in range(max(self.sizes, default=0))]
        return self._singles

    def topics(self, numbers: Sequence[int]) -> "Topics":
        """Return the topics with these numbers."""
        sizes = tuple(map(self.sizes.__getitem__, numbers))
        names = tuple(map(self.names.__getitem__, numbers))
        offsets = tuple(map(self.offsets.__getitem__, numbers))
        strides = set(map(sub, offsets[1:], offsets))
        return Topics(names, offsets, sizes, min(sizes), strides.pop() if len(strides) == 1 else 0)

    def topic_of(self, flat: int) -> int:
        return bisect_right(self.offsets, flat) - 1


@dataclass(frozen=True, slots=True)
class TopicClass:
    """Topics with the same subscribers."""

    topics: Sequence[int]
    members: Sequence[int]
    # Position of each member in `members`.
    positions: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class GroupIndex:
    """A group with members, topics and partitions as numbers. Invariant: all sequences by member have the order of `ids`."""

    table: Table
    # Member ids, in the order that the assignor chose.
    ids: Sequence[str]
    subscribers: Sequence[Subscriber]
    # Kind of each member; topics of each kind.
    kind_of: Sequence[int]
    kinds: Sequence[Sequence[int]]
    classes: Sequence[TopicClass]
    class_of: Sequence[int]
    # Racks of each partition by topic; empty if racks do not matter in this group.
    racks: Sequence[Sequence[Racks]] = ()


def index_group(group: Group, order: Sequence[str] | None = None) -> GroupIndex:
    """Index a group. Topics without a subscriber or without partitions are left out."""
    ids = sorted(group.members) if order is None else order
    subscribers = [group.members[name] for name in ids]
    kind_of, subscriptions = _kinds(subscribers, group)
    taken = frozenset().union(*subscriptions)
    table = Table({name: group.topics[name].partitions for name in taken})
    kinds = [sorted(table.index[name] for name in subscription) for subscription in subscriptions]
    classes, class_of = _classes(len(table.names), kinds, kind_of)
    racks = _racks(table, subscribers, group)
    return GroupIndex(table, ids, subscribers, kind_of, kinds, classes, class_of, racks)


def _racks(table: Table, subscribers: Sequence[Subscriber], group: Group) -> Sequence[Sequence[Racks]]:
    wanted = {subscriber.rack for subscriber in subscribers if subscriber.rack}
    if not wanted:
        return ()
    racks = [racks_of(group.topics[name]) for name in table.names]
    return racks if racks_matter(wanted, chain.from_iterable(racks)) else ()


def _kinds(subscribers: Sequence[Subscriber], group: Group) -> tuple[list[int], list[frozenset[str]]]:
    """Return the kind of each member, and the existing topics of each kind."""
    existing = frozenset(name for name, topic in group.topics.items() if topic.partitions > 0)
    # A list that many members share is read once, as are equal lists.
    by_identity: dict[int, int] = {}
    by_names: dict[tuple[str, ...], int] = {}
    by_topics: dict[frozenset[str], int] = {}
    kind_of = []
    for subscriber in subscribers:
        kind = by_identity.get(id(subscriber.topics))
        if kind is None:
            names = tuple(subscriber.topics)
            kind = by_names.get(names)
            if kind is None:
                kind = by_topics.setdefault(existing.intersection(names), len(by_topics))
                by_names[names] = kind
            by_identity[id(subscriber.topics)] = kind
        kind_of.append(kind)
    return kind_of, list(by_topics)


def _classes(
    topics: int, kinds: Sequence[Sequence[int]], kind_of: Sequence[int]
) -> tuple[list[TopicClass], list[int]]:
    takers: list[list[int]] = [[] for _ in range(topics)]
    for kind, wanted in enumerate(kinds):
        for topic in wanted:
            takers[topic].append(kind)
    members_of: list[list[int]] = [[] for _ in kinds]
    for member, kind in enumerate(kind_of):
        members_of[kind].append(member)
    by_takers: dict[tuple[int, ...], list[int]] = {}
    for topic, taking in enumerate(takers):
        by_takers.setdefault(tuple(taking), []).append(topic)
    classes, class_of = [], [0] * topics
    for number, (taking_kinds, of_class) in enumerate(by_takers.items()):
        members = sorted(member for kind in taking_kinds for member in members_of[kind])
        positions = {member: position for position, member in enumerate(members)}
        classes.append(TopicClass(of_class, members, positions))
        for topic in of_class:
            class_of[topic] = number
    return classes, class_of
