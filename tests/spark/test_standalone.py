"""The Spark cluster that tests start: jobs run on both of its workers, and nothing of it stays behind."""

import json
import os
import select
import signal
import sys
from pathlib import Path

import pytest

from tests.process import command
from tests.support.processes import Process, ProcessFailed
from tests.support.spark import Spark
from tests.support.workdir import sweep

pytestmark = pytest.mark.spark

REPO = Path(__file__).parents[2]
JOBS = Path(__file__).with_name("jobs")
TIMEOUT_S = 60
# Tasks wait for both executors. A barrier that has too few looks for others only every 15 s.
BOTH_WORKERS = {
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{TIMEOUT_S}s",
}


def test_job_runs_on_both_workers(spark: Spark, tmp_path: Path) -> None:
    answer = tmp_path / "answer.json"

    spark.run(
        JOBS / "on_both_workers.py", str(answer), modules=[JOBS / "whereabouts.py"], settings=BOTH_WORKERS
    )

    assert sorted(json.loads(answer.read_text())) == ["worker-1", "worker-2"]


def test_job_that_fails_is_an_error_with_its_log(spark: Spark) -> None:
    with pytest.raises(ProcessFailed, match="this job always fails"):
        spark.run(JOBS / "failing.py")


def test_driver_ends_with_the_process_that_submitted_it(tmp_path: Path) -> None:
    written = tmp_path / "driver"
    submit = [sys.executable, "-m", "tests.spark.owner", str(written)]
    owner = Process.start("owner", submit, log=tmp_path / "log", cwd=REPO)
    owner.wait_until(written.exists, within_s=TIMEOUT_S)
    driver = os.pidfd_open(int(written.read_text()))

    os.kill(owner.pid, signal.SIGKILL)
    owner.wait(within_s=TIMEOUT_S)

    ended, _, _ = select.select([driver], [], [], TIMEOUT_S)
    os.close(driver)
    assert ended


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_ended_command_leaves_nothing(tmp_path: Path, how: signal.Signals) -> None:
    with command.started("spark", log=tmp_path / "log") as spark:
        # A master and two workers; each of them asks the machine something through a short-lived child now and then.
        assert len(spark.servers) >= 3
        folder = spark.folder()

        assert spark.end(how) == (-how if how == signal.SIGKILL else 0)

        assert spark.left_behind() == []
    sweep("spark")  # what the next start begins with
    assert not folder.exists()
