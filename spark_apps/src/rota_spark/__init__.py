"""
Spark applications as members of a consumer group.

`process` runs a streaming query whose offsets are the group's; `register` makes `format("rota")` known to a session, for batch reads.
"""

from typing import TYPE_CHECKING

from rota_spark.core.options import InvalidOption
from rota_spark.membership import MembershipFailed
from rota_spark.process import Query, process
from rota_spark.settings import Settings
from rota_spark.source import RotaDataSource
from rota_spark.sql_sink import SinkFailed, SqlSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def register(spark: "SparkSession") -> None:
    """Make `format("rota")` known to a session."""
    spark.dataSource.register(RotaDataSource)
