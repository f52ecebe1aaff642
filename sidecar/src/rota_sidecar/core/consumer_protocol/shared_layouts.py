"""
Decodes data that many members share once: their topics, and the layout of their partitions by topic.

Two thousand members that each have one partition of each of five hundred topics differ in a number every dozen bytes. If a
blob differs from an earlier one in its numbers only, only the numbers are decoded.
"""

import struct
from array import array
from collections.abc import Sequence

from rota_sidecar.core.assignors.packed_partitions import Layout, Layouts, PackedPartitions

# Limit of shapes that are tried before a blob is decoded topic by topic.
_SHAPES_MAX = 4
_TEXTS_MAX = 16


class _Shape:
    """Byte mask of a layout: the positions of its numbers, and the value of all other bytes."""

    def __init__(self, layout: Layout, section: bytes) -> None:
        self.layout = layout
        self.size = len(section)
        fields, fixed = [">4x"], bytearray(b"\xff" * 4)
        for name, count in zip(layout.names, layout.counts, strict=True):
            head = 2 + len(name.encode()) + 4
            fields.append(f"{head}x{count}i")
            fixed += b"\xff" * head + bytes(4 * count)
        self._numbers = struct.Struct("".join(fields))
        self._fixed = int.from_bytes(fixed, "big")
        self._looks = int.from_bytes(section, "big") & self._fixed

    def read(self, data: bytes, begin: int) -> PackedPartitions | None:
        """Decode the partitions; None: the bytes have another shape."""
        section = data[begin : begin + self.size]
        if len(section) < self.size or int.from_bytes(section, "big") & self._fixed != self._looks:
            return None
        return PackedPartitions(self.layout, array("i", self._numbers.unpack(section)), section)


class SharedLayouts:
    """Cache of topics and layouts of the members decoded so far; one for each rebalance."""

    def __init__(self) -> None:
        self._texts: list[tuple[bytes, list[str]]] = []
        self._layouts = Layouts()
        self._seen: set[Layout] = set()
        self._shapes: dict[bytes, list[_Shape]] = {}

    def texts(self, data: bytes, begin: int) -> tuple[bytes, list[str]] | None:
        """Return a cached list of strings at this position with its bytes; None: not cached."""
        return next((known for known in self._texts if data.startswith(known[0], begin)), None)

    def remember_texts(self, section: bytes, texts: list[str]) -> None:
        self._texts = [(section, texts), *self._texts[: _TEXTS_MAX - 1]]

    def lists(self, data: bytes, begin: int) -> tuple[int, PackedPartitions] | None:
        """Decode partitions with a cached shape; return their size in bytes and them; None: no shape matches."""
        for shape in self._shapes.get(data[begin : begin + 4], ()):
            found = shape.read(data, begin)
            if found is not None:
                return shape.size, found
        return None

    def remember_lists(
        self, section: bytes, names: Sequence[str], lists: "Sequence[array[int]]"
    ) -> PackedPartitions:
        """Cache the layout of partitions that were decoded topic by topic; return them packed."""
        layout = self._layouts.of(tuple(names), tuple(map(len, lists)))
        if layout in self._seen and layout.size:
            shapes = self._shapes.setdefault(section[:4], [])
            shapes.insert(0, _Shape(layout, section))
            del shapes[_SHAPES_MAX:]
        self._seen.add(layout)
        numbers = array("i")
        for each in lists:
            numbers += each
        return PackedPartitions(layout, numbers, section)
