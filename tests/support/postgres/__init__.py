"""PostgreSQL for tests: a real server on this machine, by `running` in tests, by `up` for people."""

from tests.support.postgres.programs import prepare
from tests.support.postgres.server import Postgres, running

__all__ = ["Postgres", "prepare", "running"]
