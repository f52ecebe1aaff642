"""
The database of a pipeline, named by a file or a variable: `sqlite:/data/shop.db` or a DSN of PostgreSQL.

Each task opens its own connection, so that the driver and every executor must have the file, or the variable. The name, which has
the password, appears in no argument and in no plan.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rota.stores import Dialect
from rota.stores.connections import connected
from rota.stores.flows import Statement
from rota.stores.tables import CREATION_LOCK

SQLITE = "sqlite:"
POSTGRESQL = ("postgresql:", "postgres:")
# Seconds that a connection waits for another one's write transaction on SQLite.
WAIT_S = 60


class PipelineFailed(Exception):
    """A pipeline cannot run; the message has the remedy."""


def connecting(file: str | None, variable: str = "") -> Callable[[], Any]:
    """Return a function that connects to the database that a file, or else a variable, names."""

    def connect() -> object:
        return connected_to(dsn_of(variable) if file is None else dsn_in(file))

    return connect


def dsn_of(variable: str) -> str:
    """Read the name of the database from this process's environment. Raises PipelineFailed, which has nothing of the value."""
    dsn = os.environ.get(variable, "")
    if not dsn.startswith((SQLITE, *POSTGRESQL)):
        raise PipelineFailed(
            f"the variable {variable}, which --database-variable names, does not name a database: set it to sqlite:/path/of/file or "
            "postgresql://user:password@host/name for the driver and the executors"
        )
    return dsn


def dsn_in(file: str) -> str:
    """Read the name of the database. Raises PipelineFailed, which has nothing of the file's content."""
    try:
        dsn = Path(file).read_text().strip()
    except OSError as error:
        raise PipelineFailed(
            f"{file}, which --database-file names, cannot be read ({error.strerror}): mount it into the driver and the executors"
        ) from error
    if not dsn.startswith((SQLITE, *POSTGRESQL)):
        raise PipelineFailed(
            f"{file} does not name a database: write sqlite:/path/of/file or postgresql://user:password@host/name into it"
        )
    return dsn


def connected_to(dsn: str) -> Any:  # noqa: ANN401 - of any DB-API driver
    """Open a connection. Raises PipelineFailed if the driver of PostgreSQL is missing."""
    if dsn.startswith(SQLITE):
        import sqlite3

        return sqlite3.connect(dsn.removeprefix(SQLITE), isolation_level=None, timeout=WAIT_S)
    try:
        import psycopg
    except ImportError as error:
        raise PipelineFailed(
            "psycopg is not installed: install psycopg[binary] in the Python of the driver and the executors"
        ) from error
    return psycopg.connect(dsn)


def create_tables(connect: Callable[[], Any], statements: Sequence[str]) -> None:
    """Execute `CREATE TABLE IF NOT EXISTS` statements in one transaction, one pipeline at a time."""
    with closing(connect()) as connection:
        database = connected(connection, None, None)
        database.begin()
        if database.dialect is Dialect.POSTGRESQL:
            # Of two concurrent CREATE TABLE IF NOT EXISTS, PostgreSQL lets one fail.
            database.execute(Statement(f"SELECT pg_advisory_xact_lock({CREATION_LOCK})"))
        for each in statements:
            database.execute(Statement(each))
        database.commit()


def is_postgresql(connect: Callable[[], Any]) -> bool:
    """Return whether the database is PostgreSQL."""
    with closing(connect()) as connection:
        return connected(connection, None, None).dialect is Dialect.POSTGRESQL


def rows_of(connect: Callable[[], Any], sql: str) -> list[tuple[Any, ...]]:
    """Read rows in a transaction of their own."""
    with closing(connect()) as connection:
        return list(connected(connection, None, None).execute(Statement(sql, (), returns_rows=True)))
