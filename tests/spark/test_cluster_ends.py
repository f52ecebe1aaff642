"""The end of a Spark cluster that tests start, and of its jobs: nothing stays behind."""

import os
import select
import signal
import sys
from pathlib import Path

import pytest

from tests.process import command
from tests.support.processes import Process
from tests.support.workdir import sweep

pytestmark = pytest.mark.spark

REPO = Path(__file__).parents[2]
TIMEOUT_S = 60


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
