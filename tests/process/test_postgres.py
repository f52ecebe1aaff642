"""The PostgreSQL that tests start: it speaks SQL, keeps what was committed, and leaves nothing behind."""

import signal
from pathlib import Path

import psycopg
import pytest

from tests.process import command
from tests.support.postgres import running
from tests.support.postgres.fixtures import StartPostgres
from tests.support.postgres.server import PASSWORD
from tests.support.workdir import sweep

pytestmark = pytest.mark.process


def test_what_is_written_is_read(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE shift (id integer PRIMARY KEY, owner text NOT NULL)")
        connection.execute("INSERT INTO shift VALUES (1, 'ann'), (2, 'bob')")

    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT owner FROM shift ORDER BY id").fetchall()
    assert rows == [("ann",), ("bob",)]


def test_wrong_password_is_refused(database: str) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(database.replace(PASSWORD, "not-the-password"))


@pytest.mark.parametrize("durable", [True, False])
def test_committed_row_survives_a_crash_and_an_uncommitted_one_does_not(
    start_postgres: StartPostgres, *, durable: bool
) -> None:
    postgres = start_postgres(durable=durable)
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE shift (owner text)")
        connection.execute("INSERT INTO shift VALUES ('kept')")
    unfinished = psycopg.connect(postgres.dsn)
    unfinished.execute("INSERT INTO shift VALUES ('lost')")

    postgres.kill()
    with pytest.raises(psycopg.OperationalError):
        unfinished.execute("SELECT 1")
    unfinished.close()
    postgres.start()

    with psycopg.connect(postgres.dsn) as connection:
        assert connection.execute("SELECT owner FROM shift").fetchall() == [("kept",)]


def test_stopped_server_comes_back_with_its_data(start_postgres: StartPostgres) -> None:
    postgres = start_postgres()
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("CREATE TABLE shift (owner text)")

    postgres.stop()
    postgres.start()

    with psycopg.connect(postgres.dsn) as connection:
        assert connection.execute("SELECT owner FROM shift").fetchall() == []


def test_killed_server_leaves_no_shared_memory() -> None:
    with running() as postgres:
        pid = postgres.pid
        assert shared_memory_of([pid]) != []
        postgres.kill()

    assert shared_memory_of([pid]) == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_ended_command_leaves_nothing(tmp_path: Path, how: signal.Signals) -> None:
    with command.started("postgres", log=tmp_path / "log") as postgres:
        folder = postgres.folder()
        with psycopg.connect(postgres.said.split()[-1]) as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]

        assert postgres.end(how) == (-how if how == signal.SIGKILL else 0)

        assert postgres.left_behind() == []
        assert shared_memory_of(postgres.servers) == []
    if how == signal.SIGKILL:
        sweep("postgres")  # what the next start begins with
    assert not folder.exists()


def shared_memory_of(processes: list[int]) -> list[str]:
    """The shared memory that these processes made and that is still there."""
    creator = 4
    rows = [row.split() for row in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    return [row[1] for row in rows if int(row[creator]) in processes]
