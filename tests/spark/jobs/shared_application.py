"""A Spark application that shares its group with other members, until it is killed or stopped; see `tests.spark.shared_group`."""

import logging
import sys

from pyspark.sql import SparkSession

import rota_spark
from rota_spark import Settings, SqlSink
from rota_spark.pipelines.database import connecting
from tests.spark.outputs import COLUMNS, rows_of, statements
from tests.support.sidecar import QUICK


def main(servers: str, group: str, database_file: str, writer: str) -> None:
    """Run until the end, which is a kill."""
    logging.basicConfig(level=logging.INFO)
    settings = Settings(
        bootstrap_servers=servers,
        group_id=group,
        topics=[group],
        client_id=writer,
        max_records_per_batch=500,
        start_within_seconds=240,
        sidecar_flags=QUICK,
    )
    sink = SqlSink(connecting(database_file), rows_of, COLUMNS, statements(writer, "{staged}"))
    spark = SparkSession.builder.getOrCreate()
    with rota_spark.process(spark, sink, settings, trigger={"processingTime": "100 milliseconds"}) as query:
        query.await_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
