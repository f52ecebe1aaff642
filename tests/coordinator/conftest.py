"""Fixtures of the coordinator's tests."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.conformance.members import TOPIC
from tests.support.coordinator import Coordinator, serving
from tests.support.postgres import Postgres


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    """One that runs, on a file of its own, and has the topic of the cases."""
    with serving(tmp_path) as coordinator:
        coordinator.make_topic(TOPIC)
        yield coordinator


@pytest.fixture(scope="session")
def stores_database(postgres: Postgres) -> str:
    """One for all tests of the store: to make one takes longer than most of them."""
    return postgres.new_database(f"stores_{uuid.uuid4().hex[:12]}")


@pytest.fixture
def no_tables(stores_database: str) -> str:
    """Address of a database without Rota's tables."""
    with psycopg.connect(stores_database) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute("DROP SCHEMA IF EXISTS rota CASCADE")
    return stores_database
