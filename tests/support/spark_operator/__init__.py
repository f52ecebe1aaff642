"""Kubeflow's Spark operator for tests: built once per machine, and run beside a cluster by `running`."""

from tests.support.spark_operator.building import prepare
from tests.support.spark_operator.running import running

__all__ = ["prepare", "running"]
