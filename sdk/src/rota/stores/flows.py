"""
SQL of the stores, as generators of statements that receive the rows.

Each function yields statements and is sent their rows. It performs no IO, so that the same SQL serves `SqlStore` and
`AsyncSqlStore`.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from rota.metadata import GroupMetadata
from rota.stores.errors import (
    NotAssigned,
    OffsetWentBack,
    Partition,
    PositionMoved,
    StoreFenced,
)
from rota.stores.tables import Tables

# Eight values per row: older SQLite takes 999 in one statement.
ROWS_MAX = 100
SAVEPOINT = "rota_batch"


class Statement(NamedTuple):
    """SQL with `?` for each value."""

    sql: str
    values: Sequence[object] = ()
    # True if the statement returns rows.
    returns_rows: bool = False


Rows = list[tuple[Any, ...]]
T = TypeVar("T")
Flow = Generator[Statement, Rows, T]


class Save(NamedTuple):
    """An offset to store with the batch."""

    offset: int
    metadata: str
    rewind: bool


class StoredPosition(NamedTuple):
    """Position and owner of a partition in the store."""

    topic: str
    number: int
    next_offset: int | None
    incarnation: int
    generation: int
    member_id: str

    @property
    def partition(self) -> Partition:
        return self.topic, self.number

    @property
    def token(self) -> tuple[int, int]:
        return self.incarnation, self.generation


def each(statements: Iterable[str]) -> Flow[None]:
    """Yield statements without values."""
    for sql in statements:
        yield Statement(sql)


COLUMNS = "topic, partition, next_offset, incarnation, generation, member_id"


def raise_fence(
    tables: Tables, group: GroupMetadata, partitions: Iterable[Partition]
) -> Flow[dict[Partition, int | None]]:
    """
    Write the owner's token to its partitions, refused where a higher one is stored; return the positions.

    One statement does both for each row: a commit by another owner is either before it, and part of the position, or after it,
    and refused. Rows are locked in one order everywhere, so that owners do not deadlock.
    """
    positions: dict[Partition, int | None] = {}
    for some in _chunks(sorted(set(partitions))):
        rows = yield Statement(
            f"INSERT INTO {tables.offsets} AS held (group_id, topic, partition, metadata, incarnation, generation, "
            f"member_id) VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?)'] * len(some))} "
            "ON CONFLICT (group_id, topic, partition) DO UPDATE SET incarnation = excluded.incarnation, "
            "generation = excluded.generation, member_id = excluded.member_id "
            "WHERE (held.incarnation, held.generation) <= (excluded.incarnation, excluded.generation) "
            "RETURNING topic, partition, next_offset",
            [
                value
                for partition in some
                for value in (
                    *(group.group_id, *partition, ""),
                    *(group.incarnation, group.generation_id, group.member_id),
                )
            ],
            returns_rows=True,
        )
        positions.update({(topic, index): offset for topic, index, offset in rows})
        if refused := [partition for partition in some if partition not in positions]:
            yield from check_owner(tables, group, refused)
            raise NotAssigned(group.group_id, refused[0])
    return positions


def check_owner(tables: Tables, group: GroupMetadata, partitions: Iterable[Partition]) -> Flow[None]:
    """Raise StoreFenced if one of the partitions belongs to a newer owner."""
    for stored in (yield from stored_positions(tables, group.group_id, partitions)):
        _check_fence(group, stored)


def stored_positions(
    tables: Tables, group_id: str, partitions: Iterable[Partition], *, locked: bool = False
) -> Flow[list[StoredPosition]]:
    """Read positions and owners; with `locked`, other transactions cannot change them before this one ends."""
    found: list[StoredPosition] = []
    for topic, each in groupby(sorted(set(partitions)), key=lambda partition: partition[0]):
        for some in _chunks(list(each)):
            rows = yield Statement(
                f"SELECT {COLUMNS} FROM {tables.offsets} WHERE group_id = ? AND topic = ? AND partition IN "
                f"({', '.join('?' * len(some))}) ORDER BY partition{tables.for_update if locked else ''}",
                (group_id, topic, *(index for _, index in some)),
                returns_rows=True,
            )
            found += [StoredPosition(*row) for row in rows]
    return found


def save_offsets(
    tables: Tables,
    group: GroupMetadata,
    positions: Mapping[Partition, int | None],
    saves: Mapping[Partition, Save],
    partitions: Iterable[Partition],
) -> Flow[None]:
    """
    Check the fence and store the offsets, as the last statements of a batch.

    The rows stay locked until the commit, which follows at once. They are not locked while the application works: an owner
    that is stopped in the middle of its work would keep its successor from raising the fence.
    """
    wanted = set(partitions)
    found = yield from stored_positions(tables, group.group_id, wanted, locked=True)
    for missing in sorted(wanted - {stored.partition for stored in found}):
        raise NotAssigned(group.group_id, missing)
    for stored in found:
        _check_fence(group, stored)
        if (save := saves.get(stored.partition)) is not None:
            _check_offset(stored, positions[stored.partition], save)
    yield from _store_offsets(tables, group, saves)


def stored_offsets(tables: Tables, group_id: str) -> Flow[dict[Partition, int]]:
    """Read all positions of a group."""
    rows = yield Statement(
        f"SELECT topic, partition, next_offset FROM {tables.offsets} "
        "WHERE group_id = ? AND next_offset IS NOT NULL ORDER BY topic, partition",
        (group_id,),
        returns_rows=True,
    )
    return {(topic, index): offset for topic, index, offset in rows}


def _check_fence(group: GroupMetadata, stored: StoredPosition) -> None:
    own = (group.incarnation, group.generation_id)
    # The same token with another member id: a static member was restarted, and has its predecessor's
    # generation.
    if stored.token > own or (stored.token == own and stored.member_id != group.member_id):
        raise StoreFenced(group, stored.partition, stored.token, stored.member_id)
    if stored.token < own:
        raise NotAssigned(group.group_id, stored.partition)


def _check_offset(stored: StoredPosition, expected: int | None, save: Save) -> None:
    if stored.next_offset != expected:
        raise PositionMoved(stored.partition, stored.next_offset, expected)
    if stored.next_offset is not None and save.offset < stored.next_offset and not save.rewind:
        raise OffsetWentBack(stored.partition, stored.next_offset, save.offset)


def _store_offsets(tables: Tables, group: GroupMetadata, saves: Mapping[Partition, Save]) -> Flow[None]:
    # The rows exist: an upsert changes several rows in one statement.
    for some in _chunks(sorted(saves)):
        yield Statement(
            f"INSERT INTO {tables.offsets} AS held (group_id, topic, partition, next_offset, metadata, incarnation, "
            f"generation, member_id) VALUES {', '.join(['(?, ?, ?, ?, ?, ?, ?, ?)'] * len(some))} "
            "ON CONFLICT (group_id, topic, partition) DO UPDATE SET next_offset = excluded.next_offset, "
            "metadata = excluded.metadata",
            [
                value
                for partition in some
                for value in (
                    *(group.group_id, *partition, saves[partition].offset, saves[partition].metadata),
                    *(group.incarnation, group.generation_id, group.member_id),
                )
            ],
        )


def _chunks(partitions: list[Partition]) -> Iterator[list[Partition]]:
    for start in range(0, len(partitions), ROWS_MAX):
        yield partitions[start : start + ROWS_MAX]
