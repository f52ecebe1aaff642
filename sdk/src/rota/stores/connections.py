"""
Adapters of the application's database connection: of a DB-API driver, apsw, or SQLAlchemy.

No driver is imported: connections are recognized by their module names and attributes.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar, cast

from rota.stores.errors import StoreError
from rota.stores.flows import Flow, Rows, Statement
from rota.stores.tables import Dialect

# Modules of drivers, by SQL dialect.
DRIVERS = {
    "sqlite3": Dialect.SQLITE,
    "apsw": Dialect.SQLITE,
    "psycopg": Dialect.POSTGRESQL,
    "psycopg2": Dialect.POSTGRESQL,
    "pg8000": Dialect.POSTGRESQL,
}
# libpq's states of a connection with a transaction: active, idle in transaction, failed.
LIBPQ_OPEN = (1, 2, 3)
PARAMSTYLES = ("qmark", "numeric", "named", "format", "pyformat")
BEGIN = {Dialect.SQLITE: "BEGIN IMMEDIATE", Dialect.POSTGRESQL: "BEGIN"}
T = TypeVar("T")


class Connection(Protocol):
    """The operations of a database connection that a store needs."""

    dialect: Dialect

    def begin(self, *, read_only: bool = False) -> None:
        """Begin a transaction; raise if one is open."""
        ...

    def execute(self, statement: Statement) -> Rows: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class DbApi:
    """A PEP 249 connection; apsw's too, of which only cursors are used."""

    def __init__(self, connection: object, dialect: Dialect, paramstyle: str) -> None:
        self.dialect = dialect
        self._connection = cast("Any", connection)
        self._paramstyle = paramstyle

    def begin(self, *, read_only: bool = False) -> None:
        check_no_open_transaction(has_open_transaction(self._connection))
        if self._begins_explicitly():
            self._execute_sql("BEGIN" if read_only else BEGIN[self.dialect])

    def execute(self, statement: Statement) -> Rows:
        cursor = self._connection.cursor()
        try:
            cursor.execute(*rendered(statement, self._paramstyle))
            return as_tuples(cursor.fetchall()) if statement.returns_rows else []
        finally:
            cursor.close()

    def commit(self) -> None:
        if self._begins_explicitly():
            self._execute_sql("COMMIT")
        else:
            self._connection.commit()

    def rollback(self) -> None:
        if not self._begins_explicitly():
            self._connection.rollback()
        elif has_open_transaction(self._connection) is not False:
            self._execute_sql("ROLLBACK")

    def _begins_explicitly(self) -> bool:
        """Return whether transactions need an explicit BEGIN, as the driver sends none before the first statement."""
        # sqlite3 has three modes, of which only one begins a transaction before every statement.
        autocommit = getattr(self._connection, "autocommit", None)
        return autocommit is not False if self.dialect is Dialect.SQLITE else autocommit is True

    def _execute_sql(self, word: str) -> None:
        self.execute(Statement(word))


class SqlAlchemy:
    """A connection of SQLAlchemy 2 or later; SQL text goes to the driver unchanged."""

    def __init__(self, connection: object, dialect: Dialect | None) -> None:
        self._connection = cast("Any", connection)
        self.dialect = dialect or known_dialect(self._connection.dialect.name)
        self._paramstyle: str = self._connection.dialect.paramstyle

    def begin(self, *, read_only: bool = False) -> None:
        check_no_open_transaction(self._connection.in_transaction())
        self._connection.begin()
        # SQLAlchemy leaves BEGIN to sqlite3, which sends it before the first write only.
        begun = self.dialect is not Dialect.SQLITE or self._connection.connection.in_transaction
        if not begun and not read_only:
            self.execute(Statement(BEGIN[self.dialect]))

    def execute(self, statement: Statement) -> Rows:
        result = self._connection.exec_driver_sql(*rendered(statement, self._paramstyle))
        return as_tuples(result.fetchall()) if statement.returns_rows else []

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()


def connected(connection: object, dialect: Dialect | None, paramstyle: str | None) -> Connection:
    """Wrap the application's connection."""
    if hasattr(connection, "exec_driver_sql"):
        return SqlAlchemy(connection, dialect)
    dialect = dialect or known_dialect(driver_name(connection))
    paramstyle = paramstyle or getattr(sys.modules.get(driver_name(connection)), "paramstyle", None)
    # apsw declares no paramstyle: it takes SQLite's own.
    paramstyle = paramstyle or ("qmark" if dialect is Dialect.SQLITE else None)
    if paramstyle not in PARAMSTYLES:
        raise StoreError(
            f"the paramstyle of {type(connection).__module__} is unknown: set paramstyle= to one of "
            f"{', '.join(PARAMSTYLES)}"
        )
    return DbApi(connection, dialect, paramstyle)


def driver_name(connection: object) -> str:
    """Return the package of the connection's class, or of one of its base classes."""
    packages = [each.__module__.partition(".")[0] for each in type(connection).__mro__]
    return next((package for package in packages if package in DRIVERS), packages[0])


def known_dialect(name: str) -> Dialect:
    """Return the SQL dialect of a driver's or SQLAlchemy's name."""
    known = {**DRIVERS, **{dialect.value: dialect for dialect in Dialect}}
    if name not in known:
        raise StoreError(
            f"the SQL dialect of {name} is unknown: set dialect=Dialect.POSTGRESQL or Dialect.SQLITE if it is "
            "compatible with one of them"
        )
    return known[name]


def has_open_transaction(connection: object) -> bool | None:
    """Return whether a transaction is open; None if the driver does not say."""
    if getattr(connection, "autocommit", None) is False and driver_name(connection) == "sqlite3":
        return None  # it opens one as soon as the last has ended
    if isinstance(found := getattr(connection, "in_transaction", None), bool):
        return found
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    return None if status is None else int(status) in LIBPQ_OPEN


def check_no_open_transaction(is_open: bool | None) -> None:
    """Raise if a transaction is open: a batch needs a transaction of its own."""
    if is_open:
        raise StoreError(
            "a transaction is already open on this connection, and would end with the batch: commit it or roll it "
            "back first, or use a separate connection for the store"
        )


def rendered(statement: Statement, paramstyle: str) -> tuple[Any, ...]:
    """Build the arguments of the driver's `execute`, in its paramstyle."""
    text = marked(statement.sql, paramstyle)
    if not statement.values:
        return (text,)
    if paramstyle in ("named", "pyformat"):
        return text, {f"v{number}": value for number, value in enumerate(statement.values, 1)}
    return text, tuple(statement.values)


@lru_cache(maxsize=1024)
def marked(sql: str, paramstyle: str) -> str:
    """Replace each `?` by the driver's placeholder. Rota's SQL has neither `?` nor `%` for other purposes."""
    first, *rest = sql.split("?")
    return first + "".join(
        mark + part for mark, part in zip(_marks(paramstyle, len(rest)), rest, strict=True)
    )


def _marks(paramstyle: str, count: int) -> Iterator[str]:
    for number in range(1, count + 1):
        match paramstyle:
            case "numeric":
                yield f":{number}"
            case "named":
                yield f":v{number}"
            case "format":
                yield "%s"
            case "pyformat":
                yield f"%(v{number})s"
            case _:
                yield "?"


def as_tuples(rows: Sequence[Any]) -> Rows:
    """Return rows as tuples, also from a connection whose rows are mappings."""
    return [tuple(row.values()) if isinstance(row, Mapping) else tuple(row) for row in rows]


def run(connection: Connection, flow: Flow[T]) -> T:
    """Perform the statements of a flow; return its result."""
    try:
        statement = next(flow)
        while True:
            statement = flow.send(connection.execute(statement))
    except StopIteration as end:
        result: T = end.value
        return result
