"""Processes that share a store in PostgreSQL, and the administrator who disturbs them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from rota_coordinator.store.postgres import PostgresStore, open_store
from rota_coordinator.store.postgres_connection import Connection

WITHIN_S = 60
# Of a process that is to fail soon: its appends have half of it.
SHORT_MS = 1_500
COORDINATORS = "application_name = 'rota-coordinator' AND datname = current_database()"
WAITING = "wait_event_type = 'Lock'"
COMMITTING = "wait_event = 'SyncRep'"


class Process:
    """A process that is alive: its store and its id."""

    def __init__(self, store: PostgresStore, process_id: str) -> None:
        self.store = store
        self.id = process_id


@asynccontextmanager
async def process(dsn: str, *, lease_ms: int = 30_000) -> AsyncIterator[Process]:
    store = await open_store(dsn, lease_ms)
    try:
        yield Process(store, await store.register("127.0.0.1:1"))
    finally:
        await store.close()


class Administrator:
    """A separate connection with an administrator's rights."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def do(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        done = await self.connection.execute(statement, values or None)
        return await done.fetchall() if done.description else []

    async def end_lease(self, of: Process) -> None:
        """As if its time had passed."""
        await self.do(
            "UPDATE rota.processes SET lease_until = clock_timestamp() WHERE process_id = %s", of.id
        )

    async def hold(self, slot: int) -> None:
        """Lock the slot until the end of the transaction."""
        await self.do("SELECT FROM rota.slots WHERE slot = %s FOR UPDATE", slot)

    async def backends(self, state: str, count: int = 1) -> list[int]:
        """The sessions of coordinators in this state, as soon as there are so many."""
        query = f"SELECT pid FROM pg_stat_activity WHERE {COORDINATORS} AND {state}"
        async with asyncio.timeout(WITHIN_S):
            while len(found := await self.do(query)) != count:
                await asyncio.sleep(0)
        return [pid for (pid,) in found]


@asynccontextmanager
async def administrator(dsn: str) -> AsyncIterator[Administrator]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield Administrator(connection)
