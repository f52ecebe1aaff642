"""
Fixtures for tests against Spark.

A cluster takes ten seconds to start and tests keep apart by their jobs, so all share one.
"""

from collections.abc import Iterator

import pytest

from tests.support.spark.standalone import Spark, running


@pytest.fixture(scope="session")
def spark() -> Iterator[Spark]:
    """A master and two workers with one core each, shared by all tests of the run."""
    with running() as shared:
        yield shared
