"""KEDA for tests: operator and metrics adapter, built once per machine, and run beside a cluster by `running`."""

from tests.support.keda.building import prepare
from tests.support.keda.running import running

__all__ = ["prepare", "running"]
