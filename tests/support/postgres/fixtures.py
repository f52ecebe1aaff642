"""
Fixtures for tests against PostgreSQL.

Most tests share one server and get a database of their own. A test that stops or kills the server, or that
pods shall reach, starts its own.
"""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from tests.support.network import LOOPBACK, Network
from tests.support.postgres.server import Postgres, running


class StartPostgres(Protocol):
    """Starts servers that end with the test."""

    def __call__(self, *, durable: bool = False, reachable_from_pods: bool = False) -> Postgres: ...


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server, shared by all tests of the run."""
    with running() as shared:
        yield shared


@pytest.fixture
def database(postgres: Postgres) -> str:
    """DSN of an empty database that this test has for itself."""
    return postgres.new_database(f"test_{uuid.uuid4().hex[:12]}")


@pytest.fixture
def start_postgres(request: pytest.FixtureRequest) -> Iterator[StartPostgres]:
    """Start servers of one's own."""
    with ExitStack() as started:

        def start(*, durable: bool = False, reachable_from_pods: bool = False) -> Postgres:
            # The cluster takes a while to start: it is asked for by those who need it only.
            network: Network = request.getfixturevalue("cluster") if reachable_from_pods else LOOPBACK
            return started.enter_context(running(durable=durable, network=network))

        yield start
