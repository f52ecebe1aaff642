"""Prometheus for tests: a real server and promtool, by `running` in tests, by `up` for people."""

from tests.support.prometheus.programs import prepare
from tests.support.prometheus.server import Prometheus, running

__all__ = ["Prometheus", "prepare", "running"]
