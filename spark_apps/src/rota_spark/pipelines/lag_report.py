"""
A report on the history of groups' lag, as a batch: `python -m rota_spark.pipelines.lag_report`.

The history is a topic with outputs of `rota groups lag GROUP -o json`, taken again and again; the timestamp of a record is the time of
its sample. The report has a row for each window of a group's topic, and replaces the one before.
"""

import argparse
import logging
from collections.abc import Iterable, Iterator, Sequence

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql

from rota_spark.core.lag import samples_of
from rota_spark.source import RotaDataSource

log = logging.getLogger("rota.spark")
FORMATS = ("json", "csv", "parquet")
SAMPLE = (
    "at_ms BIGINT, group_id STRING, topic STRING, number INT, committed BIGINT, end_offset BIGINT, lag BIGINT, "
    "age DOUBLE, problem STRING"
)
# Sums over the partitions of a topic at one time; unknown as soon as one of them is.
TOTALS = {
    "lag": "CASE WHEN count(lag) = count(*) THEN sum(lag) END",
    "age": "max(age)",
    "committed": "CASE WHEN count(committed) = count(*) THEN sum(committed) END",
    "end_offset": "CASE WHEN count(end_offset) = count(*) THEN sum(end_offset) END",
}
# Rows of the report, over the samples of a window.
REPORT = {
    "samples": "count(*)",
    "samples_with_unknown_lag": "count(*) - count(lag)",
    "lag_records_max": "max(lag)",
    "lag_records_last": "max_by(lag, at_ms)",
    "lag_seconds_max": "max(age)",
    "produced_per_second": "{rate_of_end_offset}",
    "committed_per_second": "{rate_of_committed}",
}


def parsed(rows: Iterable[Row]) -> Iterator[tuple[object, ...]]:
    """Parse the records of a task."""
    for value, at_ms in rows:
        for sample in samples_of(value):
            yield (at_ms, *sample)


def samples_in(history: DataFrame) -> DataFrame:
    """Return a row for each sample of a partition, and for each record that is not a sample."""
    rows = history.selectExpr("value", "unix_millis(timestamp)").rdd.mapPartitions(parsed)
    return history.sparkSession.createDataFrame(rows, SAMPLE)


def report_of(samples: DataFrame, window_minutes: int) -> DataFrame:
    """Aggregate samples by group, topic and window."""
    window_ms = window_minutes * 60_000
    at_times = _aggregated(samples, ["group_id", "topic", "at_ms"], TOTALS)
    windows = at_times.selectExpr("*", f"timestamp_millis(at_ms - pmod(at_ms, {window_ms})) AS window_start")
    rates = {f"rate_of_{name}": _rate(name) for name in ("committed", "end_offset")}
    columns = {name: text.format(**rates) for name, text in REPORT.items()}
    return _aggregated(windows, ["group_id", "topic", "window_start"], columns).orderBy(
        "group_id", "topic", "window_start"
    )


def _aggregated(rows: DataFrame, keys: Sequence[str], columns: dict[str, str]) -> DataFrame:
    return rows.groupBy(*keys).agg(*(sql.expr(text).alias(name) for name, text in columns.items()))


def _rate(column: str) -> str:
    """Return the growth of a sum per second, from the first to the last sample of a window in which it is known."""
    known = f"FILTER (WHERE {column} IS NOT NULL)"
    growth = f"max_by({column}, at_ms) {known} - min_by({column}, at_ms) {known}"
    return f"1000.0D * ({growth}) / nullif(max(at_ms) {known} - min(at_ms) {known}, 0)"


def arguments_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m rota_spark.pipelines.lag_report",
        description="Report on the history of groups' lag.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--bootstrap-servers",
        required=True,
        help="where the history is: rota://host:port, or host:port of Kafka",
    )
    parser.add_argument("--topic", default="lag-history", help="topic of the history (default %(default)s)")
    parser.add_argument("--output", required=True, help="folder of the report, which is replaced")
    parser.add_argument("--format", choices=FORMATS, default="json", help="format (default %(default)s)")
    parser.add_argument(
        "--window-minutes", type=int, default=60, help="length of a row's window (default %(default)s)"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Write the report of a command line."""
    parser = arguments_parser()
    arguments = parser.parse_args(argv)
    if arguments.window_minutes < 1:
        parser.exit(
            1, f"{parser.prog}: --window-minutes is {arguments.window_minutes}: use an integer from 1\n"
        )
    spark = SparkSession.builder.appName("lag-report").getOrCreate()
    spark.dataSource.register(RotaDataSource)
    history = (
        spark.read.format("rota")
        .option("bootstrapServers", arguments.bootstrap_servers)
        .option("topics", arguments.topic)
        .load()
    )
    samples = samples_in(history).cache()
    try:
        report = report_of(samples.filter("problem IS NULL"), arguments.window_minutes)
        report.coalesce(1).write.mode("overwrite").format(arguments.format).save(arguments.output)
        _warn(samples.filter("problem IS NOT NULL"))
    finally:
        samples.unpersist()


def _warn(rejected: DataFrame) -> None:
    """Log the number of records that are not samples, by problem."""
    for problem, count in rejected.groupBy("problem").count().collect():
        log.warning("records left out of the report: %s (%s)", count, problem)


if __name__ == "__main__":
    main()
