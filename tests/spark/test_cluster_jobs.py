"""Jobs on the standalone cluster, which starts once for all of them: workers, a failure, and an executor that is killed within a batch."""

import json
import random
from pathlib import Path

import pytest

from tests.spark.shared_group import OnRota, SharedGroup, kill_an_executor
from tests.support.coordinator import serving
from tests.support.processes import ProcessFailed
from tests.support.spark import Spark

pytestmark = pytest.mark.spark

JOBS = Path(__file__).with_name("jobs")
REGISTERED_S = 60
# Tasks wait for both executors. A barrier that has too few looks for others only every 15 s.
BOTH_WORKERS = {
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{REGISTERED_S}s",
}
PARTITIONS = 4
# Of each partition; a batch has 500 of all.
RECORDS = 750


def test_job_runs_on_both_workers(spark: Spark, tmp_path: Path) -> None:
    answer = tmp_path / "answer.json"

    spark.run(
        JOBS / "on_both_workers.py", str(answer), modules=[JOBS / "whereabouts.py"], settings=BOTH_WORKERS
    )

    assert sorted(json.loads(answer.read_text())) == ["worker-1", "worker-2"]


def test_job_that_fails_is_an_error_with_its_log(spark: Spark) -> None:
    with pytest.raises(ProcessFailed, match="this job always fails"):
        spark.run(JOBS / "failing.py")


@pytest.mark.timeout(400)
def test_what_a_killed_executor_has_read_is_read_again_and_counts_once_and_in_order(
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
