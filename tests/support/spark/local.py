"""
Spark inside of this process: a driver with two cores, for tests of the driver's Python.

Java is a child of this process, and ends with it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from pyspark.sql import SparkSession

from tests.support.network import HERE
from tests.support.spark.installation import prepare
from tests.support.tree import python_path

CORES = 2
# The token of the executors, from the file that ROTA_TOKEN_FILE names in their environment, and in no other process's.
EXECUTORS_TOKEN = "planted-token-of-the-executors"


@contextmanager
def local_session(folder: Path, *, java_options: str | None = None) -> Iterator[SparkSession]:
    """
    A session with two cores; its event log is in the folder `events`, which must exist by Spark's rules.

    Java starts quickly without `java_options`; a benchmark gives some, empty ones too.
    """
    installation = prepare()
    events = folder / "events"
    events.mkdir()
    token = folder / "token"
    token.write_text(EXECUTORS_TOKEN)
    environment = {**installation.environment, "PYTHONPATH": python_path(), "ROTA_TOKEN_FILE": str(token)}
    # Java's environment, which the executors' Python inherits.
    with mock.patch.dict(os.environ, environment):
        builder = SparkSession.builder.master(f"local[{CORES}]").appName("tests")
        for name, value in {
            "spark.driver.host": HERE.address,
            "spark.driver.bindAddress": HERE.address,
            "spark.driver.memory": "700m",
            "spark.driver.extraJavaOptions": installation.java_options
            if java_options is None
            else java_options,
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.enabled": "true",
            "spark.local.dir": str(folder / "scratch"),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.ui.port": "0",
        }.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
        gateway = session.sparkContext._gateway
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()
