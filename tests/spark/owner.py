"""A process that submits a job and is then killed by `test_cluster_ends.py`, as a test run may be."""

import signal
import sys
from pathlib import Path

from tests.support.spark import Spark, prepare
from tests.support.workdir import workdir

# The job never asks for the master, so there is none.
with workdir("spark") as folder:
    Spark(prepare(), folder).submit(Path(__file__).with_name("jobs") / "sleeper.py", sys.argv[1])
    signal.pause()
