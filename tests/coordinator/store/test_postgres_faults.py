"""
The shared store when sessions, servers and addresses fail: an unknown outcome is reported as such, and nothing waits
for ever.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rota_coordinator.store import postgres_connection
from rota_coordinator.store.port import SlotLost, StoreError
from rota_coordinator.store.postgres import open_store
from rota_coordinator.store.postgres_connection import Connection
from tests.coordinator.store.postgres_processes import (
    COMMITTING,
    COORDINATORS,
    SHORT_MS,
    WAITING,
    WITHIN_S,
    Administrator,
    administrator,
    process,
)
from tests.coordinator.store.records import numbers, record
from tests.support.postgres import Postgres
from tests.support.postgres.fixtures import StartPostgres

pytestmark = pytest.mark.process


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that stands still."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_an_append_whose_session_is_killed_is_unknown_and_its_slots_need_a_new_claim(no_tables: str) -> None:
    async def body() -> None:
        async with (
            process(no_tables) as one,
            administrator(no_tables) as admin,
            administrator(no_tables) as holder,
        ):
            epochs = [(await one.store.claim(slot)).epoch for slot in range(3)]
            async with holder.connection.transaction():
                await holder.hold(1)
                appends = [one.store.append(slot, epochs[slot], [record(slot)]) for slot in (0, 1)]
                (pid,) = await admin.backends(WAITING)
                await admin.do("SELECT pg_terminate_backend(%s)", pid)
                outcomes = await asyncio.gather(*appends, return_exceptions=True)
            for outcome in outcomes:
                assert isinstance(outcome, StoreError)
                assert not isinstance(outcome, SlotLost)
            with pytest.raises(SlotLost):
                await one.store.append(0, epochs[0], [record(5)])
            await one.store.append(2, epochs[2], [record(6)])
            again, _ = await one.store.claim(0)
            await one.store.append(0, again, [record(7)])
            assert [numbers(await one.store.load(slot)) for slot in range(3)] == [[7], [], [6]]

    asyncio.run(body())


def test_a_connection_that_the_server_ended_meanwhile_is_replaced_unseen(no_tables: str) -> None:
    async def body() -> None:
        async with process(no_tables) as one, administrator(no_tables) as admin:
            epoch, _ = await one.store.claim(1)
            await one.store.append(1, epoch, [record(1)])
            await admin.do(
                f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE {COORDINATORS}"
            )
            await one.store.append(1, epoch, [record(2)])
            await one.store.renew()
            assert numbers(await one.store.load(1)) == [1, 2]

    asyncio.run(body())


def test_an_append_that_the_server_reads_after_the_next_claim_is_refused(no_tables: str) -> None:
    async def body() -> None:
        async with process(no_tables, lease_ms=SHORT_MS) as one, administrator(no_tables) as admin:
            await admin.do("UPDATE rota.processes SET lease_until = clock_timestamp() + interval '1 hour'")
            epoch, _ = await one.store.claim(1)
            await one.store.append(1, epoch, [record(1)])
            (pid,) = await admin.backends("query LIKE '%INSERT INTO rota.batches%'")
            with stopped(pid):
                with pytest.raises(StoreError, match=f"did not respond within {SHORT_MS // 2} ms"):
                    await one.store.append(1, epoch, [record(2)])
                again, _ = await one.store.claim(1)
            await admin.backends(f"pid = {pid}", 0)
            await one.store.append(1, again, [record(3)])
            assert numbers(await one.store.load(1)) == [1, 3]

    asyncio.run(body())


def test_a_caller_that_gives_up_leaves_no_work_behind(no_tables: str) -> None:
    async def body() -> None:
        async with (
            process(no_tables) as one,
            administrator(no_tables) as admin,
            administrator(no_tables) as holder,
        ):
            async with holder.connection.transaction():
                await holder.hold(1)
                claim = asyncio.ensure_future(one.store.claim(1))
                await admin.backends(WAITING)
                claim.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await claim
                assert (await one.store.claim(2)).epoch == 1
            assert (await one.store.claim(1)).epoch == 1

    asyncio.run(body())


def test_a_commit_waits_for_the_disk_and_a_frozen_process_cannot_hold_a_slot(database: str) -> None:
    async def body() -> None:
        async with administrator(database) as admin:
            name = admin.connection.info.dbname
            await admin.do(f"ALTER DATABASE {name} SET synchronous_commit = off")
            await admin.do(f"ALTER DATABASE {name} SET default_transaction_isolation = serializable")
        async with process(database, lease_ms=2_000) as one:

            async def settings(connection: Connection) -> list[str]:
                found = await connection.execute(
                    "SELECT current_setting(unnest(ARRAY['synchronous_commit', 'transaction_isolation', "
                    "'statement_timeout', 'idle_in_transaction_session_timeout']))"
                )
                return [value for (value,) in await found.fetchall()]

            assert await one.store._commits.run(settings) == ["on", "read committed", "1s", "1s"]

    asyncio.run(body())


def test_a_server_that_was_killed_and_started_again_has_all_that_was_acknowledged(
    start_postgres: StartPostgres,
) -> None:
    server = start_postgres()

    async def body() -> None:
        async with process(server.dsn) as one:
            epoch, _ = await one.store.claim(1)
            await one.store.append(1, epoch, [record(1)])
            server.kill()
            with pytest.raises(StoreError, match="start it, or choose another one"):
                await one.store.append(1, epoch, [record(2)])
            with pytest.raises(StoreError, match="start it, or choose another one"):
                await one.store.renew()
            server.start()
            assert (await one.store.renew()).owned_by(one.id) == [1]
            epoch, _ = await one.store.claim(1)
            await one.store.append(1, epoch, [record(3)])
            assert numbers(await one.store.load(1)) == [1, 3]
            await commits_without_their_standby(server)

    asyncio.run(body())


async def commits_without_their_standby(server: Postgres) -> None:
    """Cancel the wait for a standby: PostgreSQL then reports the commit as successful, though it is not replicated."""
    async with process(server.dsn) as one, administrator(server.dsn) as admin:
        for slot, ending in enumerate(("pg_cancel_backend", "pg_terminate_backend"), start=2):
            epoch, _ = await one.store.claim(slot)
            await standby(admin, "nobody")
            append = one.store.append(slot, epoch, [record(1), record(2)])
            (pid,) = await admin.backends(COMMITTING)
            await admin.do(f"SELECT {ending}(%s)", pid)
            with pytest.raises(StoreError, match="check the server"):
                await append
            await standby(admin, "")
            with pytest.raises(SlotLost):
                await one.store.append(slot, epoch, [record(3)])
            await one.store.claim(slot)
            assert numbers(await one.store.load(slot)) == [1, 2]


async def standby(admin: Administrator, name: str) -> None:
    """Let commits wait for a standby of this name."""
    await admin.do(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    await admin.do("SELECT pg_reload_conf()")
    async with asyncio.timeout(WITHIN_S):
        while await admin.do("SHOW synchronous_standby_names") != [(name,)]:
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://rota:se@cret@127.0.0.1/rota",
        "postgresql://rota:12/se@cret@127.0.0.1/rota",
        "postgresql://rota:se/cret@127.0.0.1/rota",
        "postgresql://rota:secret%zz@127.0.0.1/rota",
        "host=127.0.0.1 password=se cret",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_repeating_it(dsn: str) -> None:
    with pytest.raises(StoreError, match="invalid PostgreSQL address; use postgresql://USER@") as refused:
        asyncio.run(open_store(dsn))
    assert "cret" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_who_cannot_be_reached_is_named_without_the_password() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and does not listen
        port = free.getsockname()[1]
        with pytest.raises(StoreError) as refused:
            asyncio.run(open_store(f"postgresql://rota:secret@127.0.0.1:{port}/shop"))
    said = str(refused.value)
    assert said.startswith(f"PostgreSQL shop at 127.0.0.1:{port} cannot be reached (")
    assert said.endswith("; start it, or choose another one with --store")
    assert "secret" not in said


def test_a_wrong_password_is_refused_without_repeating_it(postgres: Postgres) -> None:
    with pytest.raises(StoreError, match="password authentication failed") as refused:
        asyncio.run(open_store(postgres.dsn.replace("rota-password", "secret")))
    assert "secret" not in str(refused.value)


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_connection, "CONNECT_S", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(StoreError, match=r"cannot be reached \(no response within 0.2 s\)"),
    ):
        asyncio.run(open_store(f"postgresql://rota@127.0.0.1:{silent.getsockname()[1]}/shop"))
