"""
A connection to PostgreSQL with a time limit for each piece of work; `postgres` has one for each kind of work.

After any error the connection is closed and the next work opens a new one, because the server may still execute the
work of the broken connection.
"""

import asyncio
import contextlib
import os
import select
import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from rota_coordinator.store.port import StoreError
from rota_coordinator.store.postgres_tls import remedy

Result = TypeVar("Result")
Connection = psycopg.AsyncConnection[TupleRow]
Work = Callable[[Connection], Awaitable[Result]]

# For all hosts of an address together; each has 2 s, the minimum that psycopg supports.
CONNECT_S = 10
# The server ends the transaction of a frozen process after the time limit, so that it holds no lock for longer. A
# response promises durability: commits are flushed, on a synchronous standby too, whatever the server's default is.
SETTINGS = """
SELECT set_config('statement_timeout', %(timeout)s, false),
    set_config('idle_in_transaction_session_timeout', %(timeout)s, false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)
"""


class Server(NamedTuple):
    """The connection info of the database, and its name without the password."""

    conninfo: str
    name: str


def parse_dsn(dsn: str) -> Server:
    """Parse an address in URL or key-value form; PG* variables supply what it omits."""
    unreadable = StoreError(
        "invalid PostgreSQL address; use postgresql://USER@HOST:PORT/DATABASE, "
        "with special characters in names and passwords written as %XX"
    )
    try:
        given = {key: str(value) for key, value in conninfo_to_dict(dsn).items()}
    except psycopg.ProgrammingError:
        # The parser's message may contain part of the password.
        raise unreadable from None
    host = given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST") or "the local socket"
    port = given.get("port") or os.environ.get("PGPORT") or "5432"
    database = given.get("dbname") or os.environ.get("PGDATABASE") or given.get("user", "")
    # An unescaped @ or / in a password moves part of the password to these fields.
    if "@" in host + database or not port.replace(",", "").isdecimal():
        raise unreadable
    wanted = {
        "application_name": "rota-coordinator",
        "connect_timeout": "2",
        "keepalives_idle": "5",
        # Of several hosts, use the one that accepts writes.
        "target_session_attrs": "read-write",
    }
    return Server(make_conninfo("", **{**wanted, **given}), f"PostgreSQL {database} at {host}:{port}")


class SerialConnection:
    """One connection, opened on demand. Invariant: it runs one piece of work at a time, in the order of the calls."""

    def __init__(self, server: Server, timeout_ms: int) -> None:
        self._server = server
        self._timeout_ms = timeout_ms
        self._connection: Connection | None = None
        self._warnings: list[str] = []
        self._turn = asyncio.Lock()
        self._closed = False

    async def run(self, work: Work[Result]) -> Result:
        """
        Run the work within the time limit. Unless the work itself raised the StoreError, its outcome is unknown after
        an error.
        """
        async with self._turn:
            if self._closed:
                raise StoreError(f"{self._server.name} is closed")
            connection, self._connection = self._connection, None
            if connection is not None and has_pending_input(connection):
                await connection.close()
                connection = None
            if connection is None:
                connection, work = await self._connect(), self._prepared(work)
            working = asyncio.ensure_future(self._work(connection, work))
            try:
                await asyncio.wait({working}, timeout=self._timeout_ms / 1000)
            finally:
                too_late = not working.done()
                if too_late:
                    # Not cancelled, because psycopg would send a cancel request and wait for the server.
                    cut(connection)
                    await asyncio.wait({working})
                    await connection.close()
                failed = working.exception()
            if too_late and failed is not None:
                raise StoreError(
                    f"{self._server.name} did not respond within {self._timeout_ms} ms; check its load, its locks "
                    "and the network"
                )
            if not connection.closed:
                self._connection = connection
            return working.result()

    async def close(self) -> None:
        """Wait for running work, then close the connection."""
        async with self._turn:
            self._closed = True
            if self._connection is not None:
                await self._connection.close()

    async def _work(self, connection: Connection, work: Work[Result]) -> Result:
        self._warnings.clear()
        in_order = False
        try:
            result = await work(connection)
            if self._warnings:
                # For example, an administrator cancelled a commit's wait for the standby.
                raise psycopg.Warning(self._warnings[0])
            in_order = True
        except StoreError:  # raised by the work itself, which has not committed
            in_order = True
            raise
        except (psycopg.Error, psycopg.Warning, OSError) as broken:
            raise StoreError(
                f"{self._server.name} failed ({first_line(broken)}); check the server"
            ) from broken
        finally:
            if not in_order:
                await connection.close()
        return result

    async def _connect(self) -> Connection:
        try:
            async with asyncio.timeout(CONNECT_S):
                return await psycopg.AsyncConnection.connect(
                    self._server.conninfo, autocommit=True, tcp_user_timeout=self._timeout_ms
                )
        except (psycopg.Error, OSError) as broken:
            problem = (
                f"no response within {CONNECT_S} s"
                if isinstance(broken, TimeoutError)
                else first_line(broken)
            )
            raise StoreError(
                f"{self._server.name} cannot be reached ({problem}); {remedy(problem)}"
            ) from broken

    def _prepared(self, work: Work[Result]) -> Work[Result]:
        """Return the work, preceded by the settings of a new connection."""

        async def both(connection: Connection) -> Result:
            await connection.execute(SETTINGS, {"timeout": f"{self._timeout_ms}ms"})
            connection.add_notice_handler(self._notice)
            return await work(connection)

        return both

    def _notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warnings.append(notice.message_primary or "unspecified warning")


def has_pending_input(connection: Connection) -> bool:
    """
    Return whether the server sent unrequested data, which nearly always announces that it closes the connection.
    """
    incoming = select.poll()
    incoming.register(connection.fileno(), select.POLLIN)
    return bool(incoming.poll(0))


def cut(connection: Connection) -> None:
    """Shut down a connection in both directions, so that waiting work fails at once."""
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as wire,
    ):
        # An error means that the server has closed the connection already.
        wire.shutdown(socket.SHUT_RDWR)


def first_line(error: Exception) -> str:
    """Return the first line of a driver's message, without its hints."""
    return next(iter(str(error).splitlines()), type(error).__name__)
