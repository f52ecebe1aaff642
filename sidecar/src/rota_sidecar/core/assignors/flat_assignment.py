"""Assignment of a member as flat numbers, converted to partitions by topic on access."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import ItemsView, Iterator, Mapping, Sequence
from itertools import repeat
from operator import lt, sub

from typing_extensions import override

from rota_sidecar.core.assignors.index import Table, Topics

Flats = Sequence[int]


class FlatAssignment(Mapping[str, Sequence[int]]):
    """Flat numbers in ascending order as partitions by topic."""

    __slots__ = ("_table", "flats")

    def __init__(self, table: Table, flats: Flats) -> None:
        self._table = table
        self.flats = flats

    @override
    def __getitem__(self, topic: str) -> Sequence[int]:
        number = self._table.index[topic]
        offset, end = self._table.offsets[number], self._table.offsets[number + 1]
        found = self.flats[bisect_left(self.flats, offset) : bisect_left(self.flats, end)]
        if not found:
            raise KeyError(topic)
        return array("i", map(sub, found, repeat(offset)))

    @override
    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.opened())

    @override
    def __len__(self) -> int:
        return sum(1 for _ in self.opened())

    @override
    def items(self) -> "FlatAssignmentItems":
        return FlatAssignmentItems(self)

    def one_of_each(self) -> tuple[tuple[str, ...], list[int]] | None:
        """Return the topics and one partition of each, unless the member has two partitions of a topic. Avoids a step per topic."""
        for topics in self._candidates():
            found = self._one_of(topics)
            if found is not None:
                self._table.latest = topics
                return topics.names, found
        return None

    def _candidates(self) -> Iterator[Topics]:
        """Return the topics of the last member if this one has the same, else its own if it has one partition of each."""
        table = self._table
        if table.latest is not None:
            yield table.latest
        # With more partitions than topics, two of one topic are neighbours, usually the first two.
        if 0 < len(self.flats) <= len(table.names) and self.flats[-1] >= table.offsets[len(self.flats) - 1]:
            topic = table.topic_of(self.flats[0])
            if len(self.flats) == 1 or self.flats[1] >= table.offsets[topic + 1]:
                found = list(map(table.topic_of, self.flats))
                if len(set(found)) == len(found):
                    yield table.topics(found)

    def _one_of(self, topics: Topics) -> list[int] | None:
        """Return the partitions if there is one of each of these topics; else None."""
        if len(topics.names) != len(self.flats):
            return None
        if isinstance(self.flats, range) and self.flats.step == topics.stride:
            # The same partition number in each topic, as in a group with as many members as partitions of every topic.
            number = self.flats.start - topics.offsets[0]
            return [number] * len(self.flats) if 0 <= number < topics.smallest else None
        numbers = list(map(sub, self.flats, topics.offsets))
        if min(numbers) >= 0 and (max(numbers) < topics.smallest or all(map(lt, numbers, topics.sizes))):
            return numbers
        return None

    def opened(self) -> Iterator[tuple[str, Sequence[int]]]:
        """Yield all topics in order, which is faster than a lookup for each."""
        single = self.one_of_each()
        if single is not None:
            names, numbers = single
            return zip(names, map(self._table.singles.__getitem__, numbers), strict=True)
        return self._opened()

    def _opened(self) -> Iterator[tuple[str, Sequence[int]]]:
        flats, offsets, names = array("i", self.flats), self._table.offsets, self._table.names
        at, count, topic = 0, len(flats), -1
        while at < count:
            # Usually the partition belongs to the next topic.
            topic += 1
            if flats[at] >= offsets[topic + 1]:
                topic = bisect_right(offsets, flats[at], topic) - 1
            offset, limit, end = offsets[topic], offsets[topic + 1], at + 1
            if end < count and flats[end] < limit:
                end = bisect_left(flats, limit, end)
                yield names[topic], array("i", map(sub, flats[at:end], repeat(offset)))
            else:
                yield names[topic], (flats[at] - offset,)
            at = end

    @override
    def __repr__(self) -> str:
        return f"FlatAssignment({ {topic: list(numbers) for topic, numbers in self.items()} })"


class FlatAssignmentItems(ItemsView[str, Sequence[int]]):
    """Items of a FlatAssignment, yielded in one pass."""

    _mapping: FlatAssignment

    @override
    def __iter__(self) -> Iterator[tuple[str, Sequence[int]]]:
        return self._mapping.opened()
