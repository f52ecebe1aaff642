"""The asynchronous store keeps and refuses what the other one does."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from rota.stores import AsyncSqlStore, Snapshots, StoreError, StoreFenced, Tenure, TransactionLost
from tests.sdk.databases import GROUP, P0, P1, member

pytestmark = pytest.mark.process

Connection = psycopg.AsyncConnection[Any]
Open = Callable[[], Awaitable[tuple[AsyncSqlStore, Connection]]]


@asynccontextmanager
async def stores(dsn: str, *, autocommit: bool) -> AsyncIterator[Open]:
    """Opens stores, each on a connection of its own, that share tables; there is a table `t…_results`, too."""
    opened: list[Connection] = []
    prefix = f"t{uuid.uuid4().hex[:12]}_"

    async def connect() -> tuple[AsyncSqlStore, Connection]:
        opened.append(await psycopg.AsyncConnection.connect(dsn, autocommit=autocommit))
        return AsyncSqlStore(opened[-1], prefix=prefix), opened[-1]

    try:
        store, _ = await connect()
        await store.create_tables()
        yield connect
    finally:
        for connection in opened:
            await connection.close()


@pytest.fixture(params=[False, True], ids=["transactions", "autocommit"])
def play(
    request: pytest.FixtureRequest, applications_database: str
) -> Callable[[Callable[[Open], Awaitable[None]]], None]:
    """Plays a story with stores."""

    def run(story: Callable[[Open], Awaitable[None]]) -> None:
        async def bounded() -> None:
            async with (
                asyncio.timeout(60),
                stores(applications_database, autocommit=request.param) as connect,
            ):
                await story(connect)

        asyncio.run(bounded())

    return run


Play = Callable[[Callable[[Open], Awaitable[None]]], None]


async def save(store: AsyncSqlStore, tenure: Tenure, offset: int) -> None:
    async with store.transaction(tenure) as tx:
        tx.save({P0: offset})


async def sleeps(watcher: Connection, pid: int) -> bool:
    """Return True if that backend is in a `pg_sleep`."""
    asked = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'"
    found = await (await watcher.execute(asked, [pid])).fetchone()
    # Within a transaction it would be told the same for ever.
    await watcher.rollback()
    return found is not None


def test_offsets_keys_and_state_are_kept_together(play: Play) -> None:
    async def story(connect: Open) -> None:
        store, _ = await connect()
        totals = Snapshots("totals")
        tenure = await store.assign(member(1), [P0, P1])
        async with store.transaction(tenure) as tx:
            assert await tx.set_if_absent("order-1")
            assert await tx.set_each_if_absent(["order-1", "order-2"]) == {"order-2"}
            totals.save(tx, P0, {b"a": b"1"}, {})
            tx.save({P0: 10})
        assert await store.stored_offsets(GROUP) == {P0: 10} != tenure.positions == {P0: 10, P1: None}
        assert await store.restore(totals, tenure, P0) == {b"a": b"1"}
        assert await store.prune_keys() == 0
        other, _ = await connect()
        assert (await other.assign(member(2), [P0])).positions == {P0: 10}

    play(story)


def test_a_late_owner_is_refused_whatever_its_block_ends_with(play: Play) -> None:
    async def story(connect: Open) -> None:
        store, _ = await connect()
        late = await store.assign(member(1), [P0])

        async def come_late(error: Exception | None) -> None:
            async with store.transaction(late) as tx:
                newer, _ = await connect()
                await newer.assign(member(2), [P0])
                assert await tx.set_if_absent("order-1")
                tx.save({P0: 10})
                if error:
                    raise error

        with pytest.raises(StoreFenced):
            await come_late(None)
        with pytest.raises(StoreFenced) as refused:
            await come_late(ValueError("unreadable record"))
        assert isinstance(refused.value.__cause__, ValueError)
        with pytest.raises(StoreFenced):
            await store.assign(member(1), [P0])
        assert await store.stored_offsets(GROUP) == {}

    play(story)


def test_a_failure_that_is_swallowed_is_no_commit(play: Play) -> None:
    async def story(connect: Open) -> None:
        store, connection = await connect()
        tenure = await store.assign(member(1), [P0])

        async def swallow() -> None:
            async with store.transaction(tenure) as tx:
                with pytest.raises(psycopg.Error):
                    await connection.execute("SELECT 1 / 0")
                tx.save({P0: 10})

        with pytest.raises(TransactionLost):
            await swallow()
        await save(store, tenure, 5)
        assert await store.stored_offsets(GROUP) == {P0: 5}

    play(story)


def test_what_is_open_already_is_left_alone(play: Play) -> None:
    async def story(connect: Open) -> None:
        store, connection = await connect()
        tenure = await store.assign(member(1), [P0])
        async with store.transaction(tenure) as tx:
            with pytest.raises(StoreError, match="leave its block first"):
                await save(store, tenure, 1)
            tx.save({P0: 2})
        with pytest.raises(StoreError, match="has ended"):
            await tx.set_if_absent("key")
        async with connection.transaction():
            with pytest.raises(StoreError, match="is already open on this connection"):
                await save(store, tenure, 3)
        assert await store.stored_offsets(GROUP) == {P0: 2}

    play(story)


def test_a_batch_that_is_cancelled_is_not_kept(play: Play) -> None:
    async def story(connect: Open) -> None:
        store, connection = await connect()
        _, watcher = await connect()
        tenure = await store.assign(member(1), [P0])

        async def work() -> None:
            async with store.transaction(tenure) as tx:
                tx.save({P0: 10})
                await connection.execute("SELECT pg_sleep(60)")

        working = asyncio.create_task(work())
        # PostgreSQL forgets a cancellation that overtakes its query, and psycopg then closes the connection.
        while not await sleeps(watcher, connection.info.backend_pid):
            assert not working.done()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        await save(store, tenure, 5)
        assert await store.stored_offsets(GROUP) == {P0: 5}

    play(story)
