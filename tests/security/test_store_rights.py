"""PostgreSQL with a role that may read and write Rota's tables, and make nothing: an administrator made them before."""

import asyncio
import subprocess
import sys
import uuid

import psycopg
import pytest
from psycopg import sql

from rota_coordinator.store.port import StoreError
from rota_coordinator.store.postgres import open_store
from rota_coordinator.store.postgres_schema import RIGHTS
from tests.coordinator.store.records import numbers, record

pytestmark = pytest.mark.process
PASSWORD = "of-the-role"
# A name that SQL has to quote.
ROLE = 'rota "app"'


@pytest.fixture
def role(database: str) -> str:
    """A role of its own, which may connect and nothing else."""
    name = f"{ROLE} {uuid.uuid4().hex[:8]}"
    run(database, sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(name), PASSWORD))
    return name


def run(dsn: str, statement: sql.SQL | sql.Composed) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement)


def as_role(database: str, role: str) -> str:
    return psycopg.conninfo.make_conninfo(database, user=role, password=PASSWORD)


def printed(role: str, *flags: str) -> str:
    """The script for an administrator."""
    command = [sys.executable, "-m", "rota_coordinator", "--print-schema", role, *flags]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def run_script(database: str, role: str, *flags: str) -> None:
    with psycopg.connect(database, autocommit=True) as administrator:
        administrator.execute(printed(role, *flags).encode())


def refused(dsn: str) -> str:
    with pytest.raises(StoreError) as refusal:
        asyncio.run(open_store(dsn))
    return str(refusal.value)


def test_a_role_that_may_create_nothing_receives_the_statements_to_have_run(database: str, role: str) -> None:
    said = refused(as_role(database, role))
    assert "permission denied for database" in said
    assert f"--print-schema '{role}'" in said
    assert "\n" not in said


def test_tables_that_an_administrator_made_are_used_with_no_right_to_make_any(
    database: str, role: str
) -> None:
    async def body() -> None:
        store = await open_store(as_role(database, role))
        try:
            await store.register("127.0.0.1:1")
            epoch = (await store.claim(3)).epoch
            await store.append(3, epoch, [record(1), record(2)])
            await store.compact(3, epoch, [record(2)])
            await store.renew()
            await store.release(3, epoch, "", b"")
            assert numbers(await store.load(3)) == [2]
            await store.leave()
        finally:
            await store.close()

    run_script(database, role)
    for forbidden in ("CREATE TABLE rota.more ()", "DROP TABLE rota.slots", "DELETE FROM rota.slots"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            run(as_role(database, role), sql.SQL(forbidden))
    asyncio.run(body())


@pytest.mark.parametrize(
    ("revoke", "missing"),
    [
        ("DELETE ON rota.batches", "DELETE on rota.batches"),
        ("UPDATE ON rota.slots", "UPDATE on rota.slots"),
        ("USAGE ON SCHEMA rota", "permission denied for schema rota"),
    ],
)
def test_a_right_that_is_missing_is_named_before_anything_is_served(
    database: str, role: str, revoke: str, missing: str
) -> None:
    run_script(database, role)
    run(database, sql.SQL("REVOKE {} FROM {}").format(sql.SQL(revoke), sql.Identifier(role)))
    said = refused(as_role(database, role))
    assert missing in said
    assert f"--print-schema '{role}'" in said


def test_the_script_can_be_run_again(database: str, role: str) -> None:
    run_script(database, role)
    run_script(database, role)
    assert not any("CREATE" in right for rights in RIGHTS.values() for right in rights)


def test_the_script_decides_on_the_number_of_slots_once(database: str, role: str) -> None:
    async def body() -> None:
        store = await open_store(as_role(database, role))
        assert store.slots == 7
        await store.close()
        with pytest.raises(StoreError, match="has 7 slots, not 50"):
            await open_store(as_role(database, role), slots=50)

    for flags in (["--slots=7"], [], ["--slots=50"]):
        run_script(database, role, *flags)
        asyncio.run(body())
