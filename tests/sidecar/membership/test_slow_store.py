"""A sidecar whose coordinator cannot store commits in time: it repeats them, and neither its membership nor a record is affected."""

import asyncio
from pathlib import Path

import pytest

from tests.coordinator.store.disk import Fault
from tests.log.disk_server import become
from tests.support.app import App
from tests.support.app import running as attached
from tests.support.coordinator import QUICK, serving
from tests.support.records import committed, fill
from tests.support.sidecar import Deliverer, delivering

pytestmark = pytest.mark.process
TOPIC, GROUP = "orders", "orders-group"
PARTITIONS = 2
RECORDS = 400


def test_commits_that_time_out_in_the_coordinator_are_repeated_until_they_are_stored(tmp_path: Path) -> None:
    flags = (*QUICK, "--offsets-commit-timeout-ms=300")
    with serving(tmp_path, flags, program="tests.log.disk_server") as coordinator:
        coordinator.make_topic(TOPIC, PARTITIONS)
        sidecar = Deliverer(
            tmp_path,
            f"rota://{coordinator.address}",
            GROUP,
            [f"--topics={TOPIC}", "--commit-interval-ms=100"],
        )
        app = App(tmp_path, sidecar.address, ["--pause-ms=5"])

        def warnings() -> list[str]:
            return [line["message"] for line in sidecar.said if line["event"] == "warning"]

        with delivering(sidecar), attached(app):
            fill(coordinator.address, TOPIC, PARTITIONS, RECORDS)
            app.wait_until(lambda: len(app.done) > 0)
            asyncio.run(become(coordinator, Fault.HANGING))
            sidecar.wait_until(lambda: any("answered REQUEST_TIMED_OUT" in each for each in warnings()))
            asyncio.run(become(coordinator, Fault.NONE))
            ends = {(TOPIC, partition): RECORDS for partition in range(PARTITIONS)}
            sidecar.wait_until(lambda: committed(coordinator.address, GROUP) == ends)
            everything = [(*partition, offset) for partition in ends for offset in range(RECORDS)]
            assert sorted(app.done) == everything
            assert len([line for line in sidecar.said if line["event"] == "joined"]) == 1
