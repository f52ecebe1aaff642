"""One of the two executors of an application on the standalone cluster is killed within a batch."""

import random
from pathlib import Path

import pytest

from tests.spark.shared_group import OnRota, SharedGroup, kill_an_executor
from tests.support.coordinator import serving
from tests.support.processes import wait_for
from tests.support.spark import Spark

pytestmark = pytest.mark.spark

EXECUTORS_S = 120
PARTITIONS = 4
# Of each partition; a batch has 500 of all.
RECORDS = 750


@pytest.mark.timeout(400)
def test_what_a_killed_executor_has_read_is_read_again_and_counts_once_and_in_order(
    spark: Spark, database: str, tmp_path: Path, seed: int
) -> None:
    with serving(tmp_path) as coordinator:
        group = SharedGroup(OnRota(coordinator), spark, database, tmp_path)
        group.prepare(PARTITIONS)
        _, application = group.application(executors=2)
        # A worker has one core, and one for no more than one executor: they are on both.
        wait_for("it has both executors", lambda: len(spark.executors) == 2, within_s=EXECUTORS_S)
        group.append(RECORDS)
        group.wait_until_stored(1, application)
        kill_an_executor(spark, random.Random(seed))
        group.wait_until_all_is_stored(application)
        group.check()
        application.stop()
