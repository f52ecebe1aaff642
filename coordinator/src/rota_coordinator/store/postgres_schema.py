"""

The tables in PostgreSQL, all in the schema `rota`, and the privileges on them that a coordinator needs.
The first process that opens the store creates the tables. If its role may not, an administrator runs `script` first.
"""

import shlex

import psycopg

from rota_coordinator.core.slots.table import SLOTS
from rota_coordinator.store.port import StoreError, check_slots
from rota_coordinator.store.postgres_connection import Connection, first_line

VERSION = 1
# Id of the advisory lock that serializes the creation of the tables: "rota" in ASCII.
LOCK = 0x726F7461
# A slot is vacant when `processes` has no row of its owner. There is deliberately no foreign key: deleting a process
# would then update all its slots and wait for the locks on them.
# Every append updates a row of `slots`; the fillfactor leaves room for heap-only updates in the same page.
TABLES = """
CREATE TABLE IF NOT EXISTS rota.schema_version (version integer NOT NULL);
CREATE TABLE IF NOT EXISTS rota.processes (
    process_id text PRIMARY KEY,
    address text NOT NULL,
    lease_until timestamptz NOT NULL
);
CREATE TABLE IF NOT EXISTS rota.slots (
    slot integer PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    last_sequence bigint NOT NULL DEFAULT 0,
    owner text NOT NULL DEFAULT '',
    new_owner text NOT NULL DEFAULT '',
    handover bytea NOT NULL DEFAULT ''
) WITH (fillfactor = 30);
CREATE TABLE IF NOT EXISTS rota.batches (
    slot integer NOT NULL,
    sequence bigint NOT NULL,
    data bytea NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (slot, sequence)
);
"""
# The number of rows of `slots` is that of the store, so existing rows are never added to.
ROWS = """
INSERT INTO rota.slots (slot) SELECT generate_series(0, {last}) WHERE NOT EXISTS (SELECT FROM rota.slots);
INSERT INTO rota.schema_version SELECT {version} WHERE NOT EXISTS (SELECT FROM rota.schema_version);
"""

# Privileges of a coordinator on each table.
RIGHTS = {
    "schema_version": ("SELECT",),
    "processes": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "slots": ("SELECT", "UPDATE"),
    "batches": ("SELECT", "INSERT", "UPDATE", "DELETE"),
}


def schema(slots: int | None) -> str:
    """Return the SQL that creates the tables with this number of slots, or with the default; it leaves existing ones as they are."""
    return TABLES + ROWS.format(last=(SLOTS if slots is None else slots) - 1, version=VERSION).lstrip()


def script(role: str, slots: int | None = None) -> str:
    """Return the SQL with which an administrator creates the tables for a role without that privilege; idempotent."""
    name = '"' + role.replace('"', '""') + '"'
    grants = [f"GRANT {', '.join(rights)} ON rota.{table} TO {name};" for table, rights in RIGHTS.items()]
    lines = [f"GRANT USAGE ON SCHEMA rota TO {name};", *grants]
    return "\n".join(
        ["BEGIN;", "CREATE SCHEMA IF NOT EXISTS rota;", schema(slots).strip(), *lines, "COMMIT;"]
    )


async def prepare(connection: Connection, slots: int | None) -> int:
    """
    Create the tables with this number of slots if they do not exist, and return the number that they have.

    Tables of a later version or with another number of slots are rejected, and a role that lacks privileges.
    """
    try:
        await make_tables(connection, slots)
        await check_rights(connection)
        found = await connection.execute("SELECT count(*) FROM rota.slots")
    except psycopg.errors.InsufficientPrivilege as denied:
        raise no_right(connection, first_line(denied)) from denied
    (count,) = await found.fetchone() or (0,)
    check_slots(f"database {connection.info.dbname}", count, slots)
    return int(count)


async def check_rights(connection: Connection) -> None:
    """Reject a role that lacks a privilege at startup, before later work fails."""
    needed = [(right, f"rota.{table}") for table, rights in RIGHTS.items() for right in rights]
    for right, table in needed:
        found = await connection.execute("SELECT has_table_privilege(%s, %s)", (table, right))
        if await found.fetchone() != (True,):
            raise no_right(connection, f"no {right} on {table}")


def no_right(connection: Connection, problem: str) -> StoreError:
    """Return the error for a role that lacks a privilege, with the command that an administrator runs."""
    role, database = connection.info.user, connection.info.dbname
    return StoreError(
        f"role {role} lacks a right in database {database} ({problem}); have an administrator run what "
        f"`python -m rota_coordinator --print-schema {shlex.quote(role)}` prints"
    )


async def make_tables(connection: Connection, slots: int | None) -> None:
    """Create the tables with this number of slots if they do not exist; reject tables of a later version."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        found = await connection.execute(
            "SELECT to_regnamespace('rota') IS NULL, to_regclass('rota.schema_version') IS NULL"
        )
        no_schema, no_tables = await found.fetchone() or (True, True)
        if no_schema:  # an administrator may have created it for a role without that privilege
            await connection.execute("CREATE SCHEMA rota")
        if no_tables:
            await connection.execute(schema(slots).encode())
        found = await connection.execute("SELECT max(version) FROM rota.schema_version")
        (version,) = await found.fetchone() or (None,)
        if version is None or version > VERSION:
            raise StoreError(
                f"database {connection.info.dbname} was written by a later version of Rota ({version}); "
                "start that version"
            )
