"""What an assignor gives a member, opened only where somebody looks."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from operator import sub

from typing_extensions import override

from rota_sidecar.assignors.roll import Table

Flats = Sequence[int]


class Share(Mapping[str, Sequence[int]]):
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
        at, offsets = 0, self._table.offsets
        while at < len(self.flats):
            topic = bisect_right(offsets, self.flats[at]) - 1
            yield self._table.names[topic]
            at = bisect_left(self.flats, offsets[topic + 1], at + 1)

    @override
    def __len__(self) -> int:
        return sum(1 for _ in self)

    @override
    def __repr__(self) -> str:
        return f"Share({ {topic: list(numbers) for topic, numbers in self.items()} })"
