"""
Records of local state in a compacted topic: their keys, values in chunks, and what a reader makes of them. Pure.

`topic_store` sends the records that `fence`, `position` and `chunks` return, and gives what it reads to `PartitionState`. A key names
group, partition and, for state, the kind and key of the entry, so compaction keeps the last record of each. A value of several
chunks is written in one transaction; the first chunk says how many there are.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rota.stores.errors import Partition, StoreError, named

Entry = tuple[bytes, bytes | None]
"""Key and value of a record; None deletes the key."""
Name = tuple[str, bytes]
"""The kind of state and the key of an entry."""

FENCE, POSITION, CHUNK = b"f", b"p", b"c"
LENGTH, NUMBER = struct.Struct(">H"), struct.Struct(">I")
KEY_BYTES_MAX = 32 << 10
ENTRY_BYTES_MAX = 64 << 20


class Fence(NamedTuple):
    """The owner that has assigned a partition last."""

    incarnation: int
    generation: int
    member_id: str


def scope_of(group_id: str, partition: Partition) -> bytes:
    """Return the part of a key that names a group and its partition."""
    topic, index = partition
    return _sized(group_id.encode()) + _sized(topic.encode()) + NUMBER.pack(index)


def fence(scope: bytes, owner: Fence) -> Entry:
    """Return the record of an owner."""
    return FENCE + scope, json.dumps(owner._asdict()).encode()


def position(scope: bytes, next_offset: int) -> Entry:
    """Return the record of the next offset to read."""
    return POSITION + scope, json.dumps({"next_offset": next_offset}).encode()


def chunks(
    scope: bytes, name: Name, value: bytes | None, chunk_bytes: int, before: int
) -> tuple[list[Entry], int]:
    """Return the records of an entry's value, None if it is deleted, and their number; `before` is that of the present value."""
    kind, key = name
    if len(key) > KEY_BYTES_MAX or len(value or b"") > ENTRY_BYTES_MAX:
        raise StoreError(
            f"an entry of state {kind!r} has a key of more than {KEY_BYTES_MAX} bytes or a value of more than "
            f"{ENTRY_BYTES_MAX}: split it over several keys"
        )
    contents: list[bytes] = []
    if value is not None:
        contents = [value[at : at + chunk_bytes] for at in range(0, len(value), chunk_bytes)] or [b""]
        contents[0] = NUMBER.pack(len(contents)) + contents[0]
    begin = CHUNK + scope + _sized(kind.encode()) + _sized(key)
    found: list[Entry] = [(begin + NUMBER.pack(number), content) for number, content in enumerate(contents)]
    found += [(begin + NUMBER.pack(number), None) for number in range(len(contents), before)]
    return found, len(contents)


def _sized(text: bytes) -> bytes:
    return LENGTH.pack(len(text)) + text


@dataclass(slots=True)
class PartitionState:
    """The state of one partition of a group, as the records of its topic say. Invariant: of each key it has the last record."""

    scope: bytes
    partition: Partition
    fence: Fence | None = None
    next_offset: int | None = None
    _chunks: dict[Name, dict[int, bytes]] = field(default_factory=dict)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a record; those of other groups and partitions, and of later versions, are passed over."""
        if key is None or key[1 : 1 + len(self.scope)] != self.scope:
            return
        match key[:1]:
            case b"f":
                self.fence = None if value is None else _fence(json.loads(value))
            case b"p":
                self.next_offset = None if value is None else int(json.loads(value)["next_offset"])
            case b"c":
                self._apply_chunk(key[1 + len(self.scope) :], value)
            case _:
                pass

    def _apply_chunk(self, rest: bytes, value: bytes | None) -> None:
        kind, rest = _taken(rest)
        entry, number = _taken(rest)
        name = kind.decode(), entry
        parts = self._chunks.setdefault(name, {})
        if value is None:
            parts.pop(NUMBER.unpack(number)[0], None)
        else:
            parts[NUMBER.unpack(number)[0]] = value
        if not parts:
            del self._chunks[name]

    def counts(self) -> dict[Name, int]:
        """Return the number of chunks of each entry."""
        return {name: max(parts) + 1 for name, parts in self._chunks.items()}

    def entries(self) -> Iterator[tuple[Name, bytes]]:
        """Yield all entries; raises StoreError for one that is incomplete."""
        for name, parts in self._chunks.items():
            first = parts.get(0, b"")
            count = NUMBER.unpack_from(first)[0] if len(first) >= NUMBER.size else 0
            if not count or any(number not in parts for number in range(count)):
                raise StoreError(
                    f"state {name[0]!r} of partition {named(self.partition)} has an entry of which chunks are missing: "
                    "delete the partition's records of the state topic, and build the state anew"
                )
            yield name, b"".join([first[NUMBER.size :], *(parts[number] for number in range(1, count))])


def _fence(given: Mapping[str, Any]) -> Fence:
    return Fence(*(given[name] for name in Fence._fields))


def _taken(rest: bytes) -> tuple[bytes, bytes]:
    """Return the field at the begin of a key, and what follows it."""
    end = LENGTH.size + LENGTH.unpack_from(rest)[0]
    return rest[LENGTH.size : end], rest[end:]


def states_of(state: PartitionState) -> Mapping[str, dict[bytes, bytes]]:
    """Return the entries of a partition by the kind of state."""
    found: dict[str, dict[bytes, bytes]] = {}
    for (kind, key), value in state.entries():
        found.setdefault(kind, {})[key] = value
    return found
