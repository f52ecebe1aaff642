"""Spark for tests: a standalone cluster on this machine, by `running` in tests, by `up` for people."""

from tests.support.spark.installation import prepare
from tests.support.spark.standalone import Spark, running

__all__ = ["Spark", "prepare", "running"]
