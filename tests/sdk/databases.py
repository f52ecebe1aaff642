"""Databases of an application, each behind another kind of connection."""

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from psycopg.rows import dict_row
from typing_extensions import override

from rota.metadata import GroupMetadata
from rota.stores import Dialect, Partition, SqlStore, Tenure
from rota.stores.flows import each

SQLITE_KINDS = (
    *("sqlite3", "sqlite3-autocommit", "sqlite3-always", "sqlite3-never", "sqlite3-rows"),
    *("apsw", "sqlalchemy", "numeric", "named", "format", "pyformat"),
)
POSTGRES_KINDS = ("psycopg", "psycopg-autocommit", "psycopg-rows")
KINDS = [*SQLITE_KINDS, *(pytest.param(kind, marks=pytest.mark.process) for kind in POSTGRES_KINDS)]
# Which tell whether a transaction is open.
REPORTING_KINDS = [kind for kind in KINDS if kind != "sqlite3-always"]
GROUP = "sales"
P0, P1 = ("orders", 0), ("orders", 1)
# As sqlite3 wants the values of each style.
STYLES = {
    "numeric": (re.compile(r":(\d+)"), r"?\1"),
    "named": (re.compile(r":(v\d+)"), r":\1"),
    "format": (re.compile(r"%s"), r"?"),
    "pyformat": (re.compile(r"%\((v\d+)\)s"), r":\1"),
}


@dataclass(slots=True)
class Database:
    """One database; `connect` `owner` gives the application's connections to it."""

    dialect: Dialect
    open: Callable[[], Any]
    # For those who look on: a statement of their own.
    ask: Callable[[str], list[tuple[Any, ...]]]
    prefix: str = "rota_"
    settings: Mapping[str, Any] = field(default_factory=dict)
    _opened: list[Any] = field(default_factory=list)

    def connect(self) -> Any:  # noqa: ANN401 - the drivers have no type in common
        """A connection, closed with the database."""
        self._opened.append(self.open())
        return self._opened[-1]

    def close(self) -> None:
        for connection in self._opened:
            connection.close()

    def owner(self, **settings: object) -> "Owner":
        """A store on a connection of its own."""
        connection = self.connect()
        return Owner(connection, SqlStore(connection, prefix=self.prefix, **{**self.settings, **settings}))

    def prepare(self) -> "Owner":
        """Create the store's tables and the application's."""
        owner = self.owner()
        owner.store.create_tables()
        self.ask(f"CREATE TABLE {self.prefix}results (name TEXT PRIMARY KEY, value INTEGER)")
        return owner

    @property
    def results(self) -> dict[str, int]:
        return dict(self.ask(f"SELECT name, value FROM {self.prefix}results"))

    @property
    def offsets(self) -> dict[tuple[str, int], int]:
        rows = self.ask(f"SELECT topic, partition, next_offset FROM {self.prefix}offsets")
        return {(topic, index): offset for topic, index, offset in rows if offset is not None}

    def put(self, name: str, value: int) -> str:
        """A result, as SQL; the same name a second time is an error."""
        return f"INSERT INTO {self.prefix}results VALUES ('{name}', {value})"

    @property
    def break_off(self) -> str:
        """A statement that fails, and ends the transaction in which it does, once there is a result `twice`."""
        if self.dialect is Dialect.SQLITE:
            return f"INSERT OR ROLLBACK INTO {self.prefix}results VALUES ('twice', 2)"
        return self.put("twice", 2)


@dataclass(slots=True)
class Owner:
    """A process of the application."""

    connection: Any
    store: SqlStore

    def do(self, *statements: str) -> None:
        """Statements of the application, on its connection."""
        self.store.run(each(statements))

    def batch(self, tenure: Tenure, offsets: Mapping[Partition, int], *results: str) -> None:
        """Results and offsets in one transaction."""
        with self.store.transaction(tenure) as tx:
            self.do(*results)
            tx.save(offsets)


def member(generation: int, *, incarnation: int = 1, name: str = "") -> GroupMetadata:
    """A member of the group in a generation; its name follows from both unless it is given."""
    return GroupMetadata(
        group_id=GROUP,
        incarnation=incarnation,
        generation_id=generation,
        member_id=name or f"member-{incarnation}-{generation}",
    )


class AlwaysInTransaction(sqlite3.Connection):
    """As Python 3.12 opens a file with `autocommit=False`: one transaction begins where the last has ended."""

    autocommit = False

    @override
    def commit(self) -> None:
        super().commit()
        self.execute("BEGIN")

    @override
    def rollback(self) -> None:
        super().rollback()
        self.execute("BEGIN")


class NeverInTransaction(sqlite3.Connection):
    """As Python 3.12 opens a file with `autocommit=True`: what the application begins, it has to end by words, too."""

    autocommit = True

    @override
    def commit(self) -> None:
        """Does nothing."""

    @override
    def rollback(self) -> None:
        """Does nothing."""


class Translating:
    """A driver of SQLite that takes values in one of PEP 249's ways, and only so."""

    def __init__(self, connection: sqlite3.Connection, style: str) -> None:
        self._connection = connection
        self._style = style

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def cursor(self) -> "TranslatingCursor":
        return TranslatingCursor(self._connection.cursor(), self._style)

    def close(self) -> None:
        self._connection.close()


class TranslatingCursor:
    """Its cursor."""

    def __init__(self, cursor: sqlite3.Cursor, style: str) -> None:
        self._cursor = cursor
        self._style = style

    def execute(self, sql: str, values: Sequence[object] | Mapping[str, object] = ()) -> None:
        pattern, mark = STYLES[self._style]
        assert "?" not in sql
        assert isinstance(values, Mapping if values and self._style in ("named", "pyformat") else Sequence)
        assert len(pattern.findall(sql)) == len(values)
        self._cursor.execute(pattern.sub(mark, sql), values)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._cursor.fetchall()

    def close(self) -> None:
        self._cursor.close()


class Engineered:
    """
    The part of SQLAlchemy's connection that a store uses, with its habits: it begins by itself, and leaves BEGIN to
    sqlite3.
    """

    class Dialect:
        name = "sqlite"
        paramstyle = "qmark"

    dialect = Dialect

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._begun = False

    def in_transaction(self) -> bool:
        return self._begun

    def begin(self) -> None:
        assert not self._begun
        self._begun = True

    def exec_driver_sql(self, sql: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        self._begun = True
        return self.connection.execute(sql, values)

    def commit(self) -> None:
        self._begun = False
        self.connection.commit()

    def rollback(self) -> None:
        self._begun = False
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()


def unflushed(connection: Any) -> Any:  # noqa: ANN401 - the drivers have no type in common
    """Turn off synchronous flushes: the database need not survive the machine, and flushing takes most of a test's time."""
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def sqlite(folder: Path, kind: str) -> Database:
    """A file, opened in the way that `kind` names."""
    path = str(folder / "application.db")

    def plain(**settings: Any) -> sqlite3.Connection:  # noqa: ANN401 - as sqlite3 declares them
        # Threads hand connections on here, and never share one.
        connection: sqlite3.Connection = unflushed(
            sqlite3.connect(path, **{"check_same_thread": False, "timeout": 20, **settings})
        )
        return connection

    def always_in_transaction() -> sqlite3.Connection:
        connection = plain(factory=AlwaysInTransaction, isolation_level=None)
        connection.execute("BEGIN")
        return connection

    def with_rows() -> sqlite3.Connection:
        connection = plain()
        connection.row_factory = sqlite3.Row
        return connection

    def ask(sql: str) -> list[tuple[Any, ...]]:
        # Locks of a file belong to the process: a second SQLite library in it would lift those of the first.
        with closing(apsw.Connection(path) if kind == "apsw" else plain(isolation_level=None)) as connection:
            return list(connection.execute(sql).fetchall())

    connects: dict[str, Callable[[], Any]] = {
        "sqlite3": plain,
        "sqlite3-autocommit": lambda: plain(isolation_level=None),
        "sqlite3-impatient": lambda: plain(timeout=0),
        "sqlite3-always": always_in_transaction,
        "sqlite3-never": lambda: plain(factory=NeverInTransaction, isolation_level=None),
        "sqlite3-rows": with_rows,
        "apsw": lambda: unflushed(apsw.Connection(path)),
        "sqlalchemy": lambda: Engineered(plain()),
    }
    if kind in STYLES:
        settings = {"dialect": Dialect.SQLITE, "paramstyle": kind}
        return Database(Dialect.SQLITE, lambda: Translating(plain(), kind), ask, settings=settings)
    return Database(Dialect.SQLITE, connects[kind], ask)


def postgres(dsn: str, kind: str, prefix: str) -> Database:
    """A PostgreSQL, connected to in the way that `kind` names."""

    def ask(sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(dsn) as connection:
            done = connection.execute(sql.encode())
            return done.fetchall() if done.description else []

    connects: dict[str, Callable[[], Any]] = {
        "psycopg": lambda: psycopg.connect(dsn),
        "psycopg-autocommit": lambda: psycopg.connect(dsn, autocommit=True),
        "psycopg-rows": lambda: psycopg.connect(dsn, row_factory=dict_row),
    }
    return Database(Dialect.POSTGRESQL, connects[kind], ask, prefix)
