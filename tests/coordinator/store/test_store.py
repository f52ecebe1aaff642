"""Rules of every store: acknowledged records are kept, an old epoch writes nothing, damage is detected."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import apsw
import psycopg
import pytest
from typing_extensions import override

from rota_coordinator.core.slots.table import SLOTS
from rota_coordinator.store import postgres, sqlite
from rota_coordinator.store.port import SlotLost, Store, StoreError
from tests.coordinator.store.records import numbers, record


class Engine(Protocol):
    """A store that can be opened again, and what can happen to it behind its back."""

    async def open(self, slots: int | None = None) -> Store: ...

    def run(self, statement: str) -> None: ...

    @property
    def refuse_batches(self) -> str: ...

    @property
    def accept_batches(self) -> str: ...

    @property
    def damage(self) -> str: ...

    @property
    def later_version(self) -> str: ...


class Sqlite(Engine):
    """A file."""

    refuse_batches = "CREATE TRIGGER full BEFORE INSERT ON batches BEGIN SELECT raise(ABORT, 'no room'); END"
    accept_batches = "DROP TRIGGER full"
    damage = "UPDATE batches SET data = CAST(data || x'00' AS BLOB)"
    later_version = "PRAGMA user_version = 99"

    def __init__(self, file: Path) -> None:
        self._file = file

    @override
    async def open(self, slots: int | None = None) -> Store:
        return sqlite.open_store(self._file, slots=slots)

    @override
    def run(self, statement: str) -> None:
        connection = apsw.Connection(str(self._file))
        connection.execute(statement)
        connection.close()


class Postgres(Engine):
    """A database."""

    refuse_batches = """
        CREATE FUNCTION rota.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no room'; END $$;
        CREATE TRIGGER full_disk BEFORE INSERT ON rota.batches EXECUTE FUNCTION rota.refuse()
    """
    accept_batches = "DROP TRIGGER full_disk ON rota.batches"
    damage = "UPDATE rota.batches SET data = data || '\\x00'"
    later_version = "UPDATE rota.schema_version SET version = 99"

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    @override
    async def open(self, slots: int | None = None) -> Store:
        store = await postgres.open_store(self._dsn, slots=slots)
        await store.register("127.0.0.1:1")
        return store

    @override
    def run(self, statement: str) -> None:
        with psycopg.connect(self._dsn) as connection:
            connection.execute(statement)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.process)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    if request.param == "sqlite":
        return Sqlite(tmp_path / "c.db")
    return Postgres(request.getfixturevalue("no_tables"))


@asynccontextmanager
async def opened(engine: Engine) -> AsyncIterator[Store]:
    store = await engine.open()
    try:
        yield store
    finally:
        await store.close()


def with_store(engine: Engine, *bodies: Callable[[Store], Coroutine[None, None, None]]) -> None:
    """Run each body with the store; between them it is closed and opened again."""

    async def run() -> None:
        for body in bodies:
            async with opened(engine) as store:
                await body(store)

    asyncio.run(run())


def test_appended_records_come_back_in_their_order_after_a_restart(engine: Engine) -> None:
    async def write(store: Store) -> None:
        epoch, _ = await store.claim(7)
        appends = [store.append(7, epoch, [record(number), record(number + 1)]) for number in (1, 3, 5)]
        assert await asyncio.gather(*appends) == [None] * 3

    async def read(store: Store) -> None:
        assert numbers(await store.load(7)) == [1, 2, 3, 4, 5, 6]
        assert await store.load(8) == []

    with_store(engine, write, read)


def test_a_log_that_is_read_in_chunks_comes_back_whole(engine: Engine) -> None:
    count = postgres.READ_ROWS * 2 + 1

    async def body(store: Store) -> None:
        epoch, _ = await store.claim(7)
        await asyncio.gather(*(store.append(7, epoch, [record(number)]) for number in range(count)))
        assert numbers(await store.load(7)) == list(range(count))

    with_store(engine, body)


def test_an_old_epoch_writes_nothing_and_its_neighbours_in_the_commit_do(engine: Engine) -> None:
    async def body(store: Store) -> None:
        old, _ = await store.claim(1)
        (new, _), (other, _) = await store.claim(1), await store.claim(2)
        outcomes = await asyncio.gather(
            store.append(1, old, [record(1)]),
            store.append(1, new, [record(2)]),
            store.append(2, other, [record(3)]),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], SlotLost)
        assert list(outcomes[1:]) == [None, None]
        assert (numbers(await store.load(1)), numbers(await store.load(2))) == ([2], [3])
        with pytest.raises(SlotLost):
            await store.compact(1, old, [])
        assert numbers(await store.load(1)) == [2]

    with_store(engine, body)


def test_compaction_replaces_the_log_and_appends_go_on_behind_it(engine: Engine) -> None:
    async def body(store: Store) -> None:
        epoch, _ = await store.claim(1)
        for number in range(1, 6):
            await store.append(1, epoch, [record(number)])
        for _ in range(2):
            await store.compact(1, epoch, [record(5)])
        await store.append(1, epoch, [record(6)])
        assert numbers(await store.load(1)) == [5, 6]

    with_store(engine, body)


def test_an_empty_log_can_be_compacted(engine: Engine) -> None:
    async def body(store: Store) -> None:
        epoch, _ = await store.claim(1)
        await store.compact(1, epoch, [])
        await store.append(1, epoch, [record(1)])
        assert numbers(await store.load(1)) == [1]

    with_store(engine, body)


def test_a_snapshot_replaces_what_was_appended_before_it_and_nothing_that_was_appended_after(
    engine: Engine,
) -> None:
    async def body(store: Store) -> None:
        epoch, _ = await store.claim(1)
        # Each begins before any of them ends.
        await asyncio.gather(
            store.append(1, epoch, [record(1)]),
            store.append(1, epoch, [record(2)]),
            store.compact(1, epoch, [record(2)]),
            store.append(1, epoch, [record(3)]),
            store.append(1, epoch, [record(4)]),
        )
        assert numbers(await store.load(1)) == [2, 3, 4]

    with_store(engine, body)


def test_what_was_decided_after_a_failed_append_is_not_written_without_it(engine: Engine) -> None:
    async def body(store: Store) -> None:
        epoch, _ = await store.claim(1)
        await store.append(1, epoch, [record(1)])
        engine.run(engine.refuse_batches)
        with pytest.raises(StoreError, match="no room"):
            await store.append(1, epoch, [record(2)])
        engine.run(engine.accept_batches)
        with pytest.raises(SlotLost):
            await store.append(1, epoch, [record(3)])
        epoch, _ = await store.claim(1)
        await store.append(1, epoch, [record(4)])
        assert numbers(await store.load(1)) == [1, 4]

    with_store(engine, body)


def test_an_append_that_nobody_waits_for_any_more_is_written_and_disturbs_no_other(engine: Engine) -> None:
    async def body(store: Store) -> None:
        epoch, _ = await store.claim(1)
        appends = [store.append(1, epoch, [record(number)]) for number in (1, 2)]
        appends[0].cancel()
        await appends[1]
        assert numbers(await store.load(1)) == [1, 2]

    with_store(engine, body)


def test_a_damaged_batch_is_refused_with_its_position(engine: Engine) -> None:
    async def write(store: Store) -> None:
        epoch, _ = await store.claim(1)
        await store.append(1, epoch, [record(1)])

    async def read(store: Store) -> None:
        engine.run(engine.damage)
        with pytest.raises(StoreError, match=r"batch 1 of slot 1 in .* is damaged"):
            await store.load(1)

    with_store(engine, write, read)


def test_what_comes_after_the_end_is_refused(engine: Engine) -> None:
    async def body() -> None:
        async with opened(engine) as store:
            epoch, _ = await store.claim(1)
            last = store.append(1, epoch, [record(1)])
        await last
        with pytest.raises(StoreError, match="is closed"):
            await store.append(1, epoch, [record(2)])
        with pytest.raises(StoreError, match="is closed"):
            await store.claim(1)

    asyncio.run(body())


def test_tables_of_a_later_version_are_refused(engine: Engine) -> None:
    async def body() -> None:
        async with opened(engine):
            pass
        engine.run(engine.later_version)
        with pytest.raises(StoreError, match=r"later version of Rota \(99\)"):
            await engine.open()

    asyncio.run(body())


@pytest.mark.parametrize(("created_with", "slots"), [(None, SLOTS), (7, 7), (SLOTS + 10, SLOTS + 10)])
def test_a_store_keeps_the_number_of_slots_that_it_was_created_with(
    engine: Engine, created_with: int | None, slots: int
) -> None:
    async def body() -> None:
        store = await engine.open(created_with)
        assert store.slots == slots
        epoch, _ = await store.claim(slots - 1)
        await store.append(slots - 1, epoch, [record(1)])
        await store.close()
        for same in (None, slots):
            store = await engine.open(same)
            assert store.slots == slots
            assert numbers(await store.load(slots - 1)) == [1]
            await store.close()
        for other in (slots - 1, slots + 1):
            with pytest.raises(StoreError) as refusal:
                await engine.open(other)
            assert f" has {slots} slots, not {other}, and keeps them" in str(refusal.value)
            assert f"start with --slots {slots} or without --slots" in str(refusal.value)
        store = await engine.open()
        assert numbers(await store.load(slots - 1)) == [1]
        await store.close()

    asyncio.run(body())
