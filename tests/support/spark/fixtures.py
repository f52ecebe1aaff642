"""
Fixtures for tests against Spark.

A cluster takes ten seconds to start and tests keep apart by their jobs, so all share one.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.spark.standalone import Spark, running
from tests.support.workdir import workdir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[Spark]:
    """A master and two workers with one core each, shared by all tests of the run."""
    with running() as shared:
        yield shared


@pytest.fixture(scope="session")
def spark_session() -> Iterator["SparkSession"]:
    """A session with two cores whose driver is this process, shared by all tests of the run."""
    # Only tests that have Spark import it: it takes a second.
    from tests.support.spark.local import local_session

    with workdir("spark-session") as folder, local_session(folder) as session:
        yield session
