"""PostgreSQL over a network: only a server whose certificate and name are verified gets the password and the offsets."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from rota_coordinator.store.postgres_tls import problem
from tests.support.certificates import Authority
from tests.support.coordinator import Coordinator
from tests.support.postgres import Postgres
from tests.support.postgres.server import running
from tests.support.processes import ProcessFailed

VARIABLES = ("PGHOST", "PGHOSTADDR", "PGSSLMODE", "PGSERVICE")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("dsn", "host"),
    [
        ("postgresql://rota@db/rota", "db"),
        ("postgresql://rota@203.0.113.7/rota?sslmode=require", "203.0.113.7"),
        ("postgresql://rota@db/rota?sslmode=verify-ca", "db"),
        ("postgresql://rota@localhost,db/rota", "db"),
        ("postgresql://rota@localhost/rota?hostaddr=203.0.113.7", "203.0.113.7"),
        ("postgresql:///rota?service=shop", "service shop"),
    ],
)
def test_a_server_on_another_machine_is_refused_without_verification(dsn: str, host: str) -> None:
    refused = problem(dsn)
    assert refused.startswith(f"--store: PostgreSQL at {host} is on another host")
    assert "sslmode=verify-full" in refused
    assert "--insecure" in refused


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://rota@127.0.0.1/rota",
        "postgresql://rota@[::1]/rota",
        "postgresql://rota@localhost/rota",
        "postgresql:///rota",
        "postgresql:///rota?host=/var/run/postgresql",
        "postgresql://rota@db/rota?hostaddr=127.0.0.1",
        "postgresql://rota@db,standby/rota?sslmode=verify-full",
        "postgresql:///rota?service=shop&sslmode=verify-full",
    ],
)
def test_a_server_here_and_one_that_is_verified_are_served(dsn: str) -> None:
    assert not problem(dsn)


def test_variables_count_as_they_do_for_libpq(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db")
    assert "at db is on another host" in problem("postgresql:///rota")
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert not problem("postgresql:///rota")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("store") / "ours")


@pytest.fixture(scope="module")
def encrypted(authority: Authority) -> Iterator[Postgres]:
    """A server that takes TLS only; its certificate is for 127.0.0.1, not for localhost."""
    with running(tls=authority.issue("postgres", ["IP:127.0.0.1"])) as server:
        yield server


def trusting(authority: Authority, server: Postgres) -> str:
    return f"{server.dsn}?sslmode=verify-full&sslrootcert={authority.certificate}"


def refusal(folder: Path, store: str, *flags: str) -> str:
    """Return the error of a coordinator that does not start."""
    coordinator = Coordinator(folder, flags, store=store)
    with pytest.raises(ProcessFailed):
        coordinator.start()
    return coordinator.log.read_text()


@pytest.mark.process
def test_the_store_is_reached_over_verified_tls(
    tmp_path: Path, authority: Authority, encrypted: Postgres
) -> None:
    coordinator = Coordinator(tmp_path, store=trusting(authority, encrypted))
    coordinator.start()
    with psycopg.connect(trusting(authority, encrypted)) as connection:
        used = connection.execute(
            "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
            "WHERE application_name = 'rota-coordinator'"
        ).fetchall()
    assert used == [(True,)]
    assert coordinator.stop() == 0


@pytest.mark.process
@pytest.mark.parametrize("wrong", ["authority", "name"])
def test_a_server_that_cannot_be_verified_is_refused_with_one_message(
    tmp_path: Path, authority: Authority, encrypted: Postgres, wrong: str
) -> None:
    store = trusting(authority, encrypted)
    if wrong == "authority":
        store = trusting(Authority(tmp_path / "theirs"), encrypted)
    else:
        store = store.replace("@127.0.0.1:", "@localhost:")
    said = refusal(tmp_path, store)
    assert "certificate" in said
    assert "set sslrootcert=FILE to the certificate of its authority" in said
    assert said.count("\n") == 1
    assert "rota-password" not in said


@pytest.mark.process
def test_a_coordinator_does_not_start_on_a_remote_server_unless_allowed(tmp_path: Path) -> None:
    # Of a network for documentation; nothing is sent there, because the address is refused before.
    store = "postgresql://rota@203.0.113.7/rota?connect_timeout=2"
    said = refusal(tmp_path, store)
    assert said.startswith("rota-coordinator: --store: PostgreSQL at 203.0.113.7 is on another host")
    assert said.count("\n") == 1
