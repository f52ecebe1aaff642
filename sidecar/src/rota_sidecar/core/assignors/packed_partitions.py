"""
Partitions by topic as one array of numbers and a layout, which members with equal counts per topic share.

Two thousand members of which each has one partition of each of five hundred topics are two thousand arrays and one
layout. The class is a mapping from topic to partition numbers.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from sys import byteorder
from typing import Final

from typing_extensions import override

_HIGH_BYTE: Final = 3 if byteorder == "little" else 0
_BITS: Final = 32


class Layout:
    """Topics and the number of partitions of each. Invariant: equal layouts of one `Layouts` are the same object."""

    __slots__ = ("counts", "names", "size")

    def __init__(self, names: tuple[str, ...], counts: tuple[int, ...]) -> None:
        self.names = names
        self.counts = counts
        self.size = sum(counts)


class PackedPartitions(Mapping[str, Sequence[int]]):
    """Partitions of one member, as numbers in the order of a layout."""

    __slots__ = ("_by_topic", "layout", "numbers", "written")

    def __init__(self, layout: Layout, numbers: "array[int]", written: bytes = b"") -> None:
        self.layout = layout
        self.numbers = numbers
        # Encoded form as received; an unchanged assignment is sent without encoding it again.
        self.written = written
        self._by_topic: dict[str, array[int]] | None = None

    @property
    def non_negative(self) -> bool:
        """True if no number is negative, by the sign bits alone."""
        return self.numbers.tobytes()[_HIGH_BYTE::4].isascii()

    @override
    def __getitem__(self, topic: str) -> Sequence[int]:
        return self._opened()[topic]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self.layout.names)

    @override
    def __len__(self) -> int:
        return len(self.layout.names)

    @override
    def __repr__(self) -> str:
        return f"PackedPartitions({ {topic: list(numbers) for topic, numbers in self.items()} })"

    def _opened(self) -> "dict[str, array[int]]":
        if self._by_topic is None:
            self._by_topic, begin = {}, 0
            for name, count in zip(self.layout.names, self.layout.counts, strict=True):
                self._by_topic[name] = self.numbers[begin : begin + count]
                begin += count
        return self._by_topic


class Layouts:
    """Registry of layouts."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, ...], tuple[int, ...]], Layout] = {}

    def of(self, names: tuple[str, ...], counts: tuple[int, ...]) -> Layout:
        """Return the layout with these names and counts."""
        key = names, counts
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Layout(names, counts)
        return found

    def lists(self, owned: Mapping[str, Sequence[int]]) -> PackedPartitions:
        """Pack partitions by topic; a number that exceeds 32 bits becomes -1, which no topic has."""
        if isinstance(owned, PackedPartitions):
            return owned
        try:
            numbers = array("i", chain.from_iterable(owned.values()))
        except OverflowError:
            known = (n if -1 <= n < 2 ** (_BITS - 1) else -1 for n in chain.from_iterable(owned.values()))
            numbers = array("i", known)
        # Topics without partitions are left out, because a layout has at least one number for each topic.
        counts = tuple(map(len, owned.values()))
        if 0 in counts:
            return self.lists({name: of_topic for name, of_topic in owned.items() if len(of_topic)})
        return PackedPartitions(self.of(tuple(owned), counts), numbers)
