"""Databases for the tests of stores, of every kind that is proven."""

import uuid
from collections.abc import Iterator

import pytest

from tests.sdk.databases import KINDS, POSTGRES_KINDS, Database, Owner, postgres, sqlite
from tests.support.postgres import Postgres


@pytest.fixture(scope="session")
def applications_database(postgres: Postgres) -> str:
    """One for all tests of stores, which keep apart by the names of their tables."""
    return postgres.new_database(f"applications_{uuid.uuid4().hex[:12]}")


@pytest.fixture(params=KINDS)
def application(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database with the tables, behind a connection of each kind."""
    kind: str = request.param
    if kind in POSTGRES_KINDS:
        dsn: str = request.getfixturevalue("applications_database")
        database = postgres(dsn, kind, f"t{uuid.uuid4().hex[:12]}_")
    else:
        database = sqlite(request.getfixturevalue("tmp_path"), kind)
    database.prepare()
    yield database
    database.close()


@pytest.fixture
def on_postgres(applications_database: str) -> Iterator[Database]:
    """The same on PostgreSQL only, for owners who meet in the middle of their work."""
    database = postgres(applications_database, "psycopg", f"t{uuid.uuid4().hex[:12]}_")
    database.prepare()
    yield database
    database.close()


@pytest.fixture
def owner(application: Database) -> Owner:
    return application.owner()
