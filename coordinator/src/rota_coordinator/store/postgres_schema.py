"""The tables in PostgreSQL, all in the schema `rota`. Made by whoever opens the store first."""

from rota_coordinator.slots.table import SLOTS
from rota_coordinator.store.port import StoreError
from rota_coordinator.store.postgres_line import Connection

VERSION = 1
# Of the advisory lock that lets one process at a time look and create; "rota" in ASCII.
LOCK = 0x726F7461
# A slot is vacant when its owner is no row of `processes`. There is no foreign key on purpose: ending a process would
# then write all its slots, and wait for whoever holds one of them.
# The rows of `slots` change with every append: the room in their pages lets PostgreSQL do it in place.
SCHEMA = f"""
CREATE TABLE rota.schema_version (version integer NOT NULL);
CREATE TABLE rota.processes (
    process_id text PRIMARY KEY,
    address text NOT NULL,
    lease_until timestamptz NOT NULL
);
CREATE TABLE rota.slots (
    slot integer PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    last_sequence bigint NOT NULL DEFAULT 0,
    owner text NOT NULL DEFAULT '',
    heir text NOT NULL DEFAULT '',
    parcel bytea NOT NULL DEFAULT ''
) WITH (fillfactor = 30);
CREATE TABLE rota.batches (
    slot integer NOT NULL,
    sequence bigint NOT NULL,
    data bytea NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (slot, sequence)
);
INSERT INTO rota.slots (slot) SELECT generate_series(0, {SLOTS - 1});
INSERT INTO rota.schema_version VALUES ({VERSION});
"""


async def prepare(connection: Connection) -> None:
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
