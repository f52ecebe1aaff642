"""
The tables in PostgreSQL, all in the schema `rota`, and the rights on them that a coordinator needs.

The first process that opens the store makes the tables. Where its role may not, an administrator runs `script` before.
"""

import shlex

import psycopg

from rota_coordinator.core.slots.table import SLOTS
from rota_coordinator.store.port import StoreError
from rota_coordinator.store.postgres_connection import Connection, first_line

VERSION = 1
# Of the advisory lock that lets one process at a time look and create; "rota" in ASCII.
LOCK = 0x726F7461
# A slot is vacant when its owner is no row of `processes`. There is no foreign key on purpose: ending a process would
# then write all its slots, and wait for whoever holds one of them.
# The rows of `slots` change with every append: the room in their pages lets PostgreSQL do it in place.
SCHEMA = f"""
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
INSERT INTO rota.slots (slot) SELECT generate_series(0, {SLOTS - 1}) ON CONFLICT DO NOTHING;
INSERT INTO rota.schema_version SELECT {VERSION} WHERE NOT EXISTS (SELECT FROM rota.schema_version);
"""

# What a coordinator does with each table.
RIGHTS = {
    "schema_version": ("SELECT",),
    "processes": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "slots": ("SELECT", "UPDATE"),
    "batches": ("SELECT", "INSERT", "UPDATE", "DELETE"),
}


def script(role: str) -> str:
    """Return the SQL with which an administrator makes the tables for a role that may make none; run again, it changes nothing."""
    name = '"' + role.replace('"', '""') + '"'
    grants = [f"GRANT {', '.join(rights)} ON rota.{table} TO {name};" for table, rights in RIGHTS.items()]
    lines = [f"GRANT USAGE ON SCHEMA rota TO {name};", *grants]
    return "\n".join(["BEGIN;", "CREATE SCHEMA IF NOT EXISTS rota;", SCHEMA.strip(), *lines, "COMMIT;"])


async def prepare(connection: Connection) -> None:
    """Make the tables, unless they are there; refuse those of a later version, and a role that may not use them."""
    try:
        await make_tables(connection)
        await check_rights(connection)
    except psycopg.errors.InsufficientPrivilege as denied:
        raise no_right(connection, first_line(denied)) from denied


async def check_rights(connection: Connection) -> None:
    """Refuse a role that lacks a right, before some later work fails for it."""
    needed = [(right, f"rota.{table}") for table, rights in RIGHTS.items() for right in rights]
    for right, table in needed:
        found = await connection.execute("SELECT has_table_privilege(%s, %s)", (table, right))
        if await found.fetchone() != (True,):
            raise no_right(connection, f"no {right} on {table}")


def no_right(connection: Connection, problem: str) -> StoreError:
    """Return the refusal of a role, with what an administrator does about it."""
    role, database = connection.info.user, connection.info.dbname
    return StoreError(
        f"role {role} lacks a right in database {database} ({problem}); have an administrator run what "
        f"`python -m rota_coordinator --print-schema {shlex.quote(role)}` prints"
    )


async def make_tables(connection: Connection) -> None:
    """Make the tables, unless they are there; refuse those of a later version."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        found = await connection.execute(
            "SELECT to_regnamespace('rota') IS NULL, to_regclass('rota.schema_version') IS NULL"
        )
        no_schema, no_tables = await found.fetchone() or (True, True)
        if no_schema:  # an administrator may have made it, for a user who may not
            await connection.execute("CREATE SCHEMA rota")
        if no_tables:
            await connection.execute(SCHEMA)
        found = await connection.execute("SELECT max(version) FROM rota.schema_version")
        (version,) = await found.fetchone() or (None,)
        if version is None or version > VERSION:
            raise StoreError(
                f"database {connection.info.dbname} was written by a later version of Rota ({version}); "
                "start that version"
            )
