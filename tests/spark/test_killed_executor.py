"""An executor that is killed within a batch: Spark reads the batch again, and each record counts once and in order."""

import random
from pathlib import Path

import pytest

from tests.spark.shared_group import OnRota, SharedGroup, kill_an_executor
from tests.support.coordinator import serving
from tests.support.spark import Spark

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

PARTITIONS = 4
# Of each partition; a batch has 500 of all.
RECORDS = 750


def test_what_a_killed_executor_has_read_is_read_again_and_counts_once(
    spark: Spark, database: str, tmp_path: Path, seed: int
) -> None:
    with serving(tmp_path) as coordinator:
        group = SharedGroup(OnRota(coordinator), spark, database, tmp_path)
        group.prepare(PARTITIONS)
        _, application = group.application()
        group.append(RECORDS)
        group.wait_until_stored(1, application)
        kill_an_executor(spark, random.Random(seed))
        group.wait_until_all_is_stored(application)
        group.check()
        application.stop()
