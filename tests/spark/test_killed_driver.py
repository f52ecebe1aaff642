"""A driver that is killed between the sink's commit and the group's: its member leaves, and the next driver continues exactly there."""

import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rota_spark
from tests.spark.jobs import killed_driver
from tests.spark.results import AVAILABLE_NOW, WITHIN_S
from tests.support.coordinator import serving
from tests.support.processes import Process, wait_for
from tests.support.records import batch, committed, produce
from tests.support.spark.installation import prepare
from tests.support.tree import REPO, python_path

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

PARTITIONS, RECORDS = 2, 400


def test_the_member_of_a_killed_driver_leaves_and_each_record_counts_once(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    file = str(tmp_path / "totals.db")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE totals (partition INTEGER PRIMARY KEY, amount BIGINT NOT NULL)")
    with serving(tmp_path) as coordinator:
        address = f"rota://{coordinator.address}"
        coordinator.make_topic("killed", PARTITIONS)
        for number in range(PARTITIONS):
            produce(coordinator.address, "killed", number, batch([str(each) for each in range(RECORDS)]))
        spark = prepare()
        driver = Process.start(
            "driver",
            [sys.executable, "-m", "tests.spark.jobs.killed_driver", address, "killed", file],
            log=tmp_path / "driver.log",
            cwd=REPO,
            env={
                **spark.environment,
                "JDK_JAVA_OPTIONS": spark.java_options,
                "PYTHONPATH": python_path(),
            },
        )
        assert driver.wait(within_s=WITHIN_S) == -signal.SIGKILL
        wait_for("its sidecar has left", lambda: coordinator.members_of("killed") == 0, within_s=WITHIN_S)
        with closing(sqlite3.connect(file)) as connection:
            ((stored,),) = connection.execute("SELECT sum(next_offset) FROM rota_offsets").fetchall()
        assert stored == 2 * killed_driver.RECORDS_MAX
        assert sum(committed(coordinator.address, "killed").values()) == killed_driver.RECORDS_MAX

        sink, settings = killed_driver.sink(file), killed_driver.settings(address, "killed")
        with rota_spark.process(spark_session, sink, settings, trigger=AVAILABLE_NOW) as query:
            assert query.await_termination(WITHIN_S)

        assert committed(coordinator.address, "killed") == {
            ("killed", number): RECORDS for number in range(PARTITIONS)
        }
    with closing(sqlite3.connect(file)) as connection:
        totals = dict(connection.execute("SELECT partition, amount FROM totals").fetchall())
        assert totals == dict.fromkeys(range(PARTITIONS), sum(range(RECORDS)))
        assert connection.execute("SELECT count(*) FROM rota_staging_amount_partition").fetchone() == (0,)
