"""Rows that can be told apart, and a store on a file, for tests of the embedded log's store."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path

import apsw

from rota_coordinator.core.log.batch import NO_PRODUCER, NO_SEQUENCE, Control, Header, Row
from rota_coordinator.store.port import LogStore
from rota_coordinator.store.sqlite import open_store

Story = Callable[[LogStore], Coroutine[None, None, None]]
EVERYTHING = 2**40
COUNT = 10
# The first timestamp of offset 0; every offset is a millisecond later.
BEGIN_MS = 1_790_000_000_000


def row(log_id: int, base_offset: int, size: int = 100, *, max_timestamp_ms: int | None = None) -> Row:
    """Ten records, of which the payload says log and offset."""
    at_ms = BEGIN_MS + base_offset
    last_ms = at_ms + COUNT - 1 if max_timestamp_ms is None else max_timestamp_ms
    header = Header(
        base_offset,
        COUNT,
        at_ms,
        last_ms,
        NO_PRODUCER,
        -1,
        NO_SEQUENCE,
        transactional=False,
        control=Control.RECORDS,
    )
    return Row(log_id, header, appended_ms=at_ms + 1, codec=0, payload=payload(log_id, base_offset, size))


def payload(log_id: int, base_offset: int, size: int) -> bytes:
    """So long, and unlike all others."""
    word = b"%d:%d " % (log_id, base_offset)
    return (word * (size // len(word) + 1))[:size]


def rows(log_id: int, count: int, size: int = 100, *, first: int = 0) -> list[Row]:
    """So many, one behind the other."""
    return [row(log_id, (first + number) * COUNT, size) for number in range(count)]


def offsets(some: Iterable[Row]) -> list[int]:
    """Return the base offsets of rows."""
    return [each.header.base_offset for each in some]


def play(folder: Path, *stories: Story) -> None:
    """Each with the store; between them it is closed and opened again."""

    async def run() -> None:
        for story in stories:
            store = open_store(folder / "c.db")
            try:
                await story(store)
            finally:
                await store.close()

    asyncio.run(run())


def run(folder: Path, statement: str) -> None:
    """Change the file behind the store's back."""
    connection = apsw.Connection(str(folder / "c.db"))
    connection.execute(statement)
    connection.close()


async def everything(store: LogStore, log_id: int) -> list[Row]:
    """All rows of a log, read piece by piece."""
    found: list[Row] = []
    while more := await store.read(
        log_id, found[-1].header.next_offset if found else 0, EVERYTHING, 10_000_000
    ):
        found += more
    return found


async def headers(store: LogStore) -> list[tuple[int, Header]]:
    """Of all logs."""
    return [each async for some in store.headers() for each in some]
