"""
Keeps as many SparkApplications of a group as its partitions need, and says what is missing to run any.

Run by the runner for each group with `spec.spark.enabled` and no `spec.replicas`.
"""

import os
import shutil
from collections.abc import Callable

from rota_operator.local.commands import LocalPaths
from rota_operator.local.dashboard_state import DashboardState
from rota_operator.local.workload import REPLICAS_MAX
from rota_operator.manifests.resources import Manifests
from rota_operator.manifests.spark import applications_for
from rota_operator.spec.workload import Spark

NO_SPARK = (
    "spark-submit is not found, which runs SparkApplications; install it with `pip install rota-spark`, or put Spark's folder bin "
    "on PATH"
)
NO_JAVA = "java is not found, which Spark needs; install Java 17, and set JAVA_HOME or put it on PATH"


class SparkSize:
    """
    The number of one group's applications. Invariant: it is set when the number of partitions changes, and at no other time.

    A new group has one, whose member asks for the partitions.
    """

    def __init__(self, spark: Spark, wanted: Callable[[], int], scale: Callable[[int, str], None]) -> None:
        self._spark = spark
        self._wanted = wanted
        # Set the number of applications, for this reason.
        self._scale = scale
        self._last = 0

    def observe(self, partitions: int) -> None:
        """Scale, if the number of partitions is known and another one than before."""
        if partitions in (0, self._last):
            return
        self._last = partitions
        wanted = min(applications_for(partitions, self._spark), REPLICAS_MAX)
        if wanted != self._wanted():
            self._scale(wanted, f"{partitions} partitions")


async def follow_partitions(group_id: str, size: SparkSize, dashboard: DashboardState) -> None:
    """Tell the size of each number of partitions until cancelled."""
    while True:
        view = dashboard.group(group_id)
        assert view is not None, "the runner knows the groups of its workloads"
        size.observe(len(view.partitions) + view.partitions_left_out)
        await dashboard.wait_for_change()


def missing_spark(manifests: Manifests, paths: LocalPaths) -> str:
    """Return the error if a program is missing that SparkApplications need, else an empty string."""
    if not any(group.spec.spark.enabled for group in manifests.groups.values()):
        return ""
    path = os.pathsep.join([str(paths.python.parent), os.environ.get("PATH", "")])
    if shutil.which("spark-submit", path=path) is None:
        return NO_SPARK
    if not os.environ.get("JAVA_HOME") and shutil.which("java", path=path) is None:
        return NO_JAVA
    return ""
