"""
Spark applications as members of a consumer group.

`process` runs a streaming query whose offsets are the group's; `register` makes `format("rota")` known to a session, for batch reads.
Names are imported on first use: Spark starts several processes for each query, which need few of them.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rota_spark.core.options import InvalidOption
    from rota_spark.membership import MembershipFailed
    from rota_spark.query import Query, process
    from rota_spark.settings import Settings
    from rota_spark.source import RotaDataSource
    from rota_spark.sql_sink import SinkFailed, SqlSink

__all__ = [
    "InvalidOption",
    "MembershipFailed",
    "Query",
    "RotaDataSource",
    "Settings",
    "SinkFailed",
    "SqlSink",
    "process",
    "register",
]

_HOMES = {
    "InvalidOption": "core.options",
    "MembershipFailed": "membership",
    "Query": "query",
    "RotaDataSource": "source",
    "Settings": "settings",
    "SinkFailed": "sql_sink",
    "SqlSink": "sql_sink",
    "process": "query",
}


def register(spark: "SparkSession") -> None:
    """Make `format("rota")` known to a session."""
    from rota_spark.source import RotaDataSource

    spark.dataSource.register(RotaDataSource)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rota_spark' has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"rota_spark.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
