"""The command line that the streaming pipelines share; none of its arguments is secret, as arguments are public on a machine."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from rota_spark.core.options import InvalidOption
from rota_spark.membership import MembershipFailed
from rota_spark.pipelines.database import PipelineFailed, connecting
from rota_spark.query import process
from rota_spark.settings import Settings
from rota_spark.sql_sink import SqlSink


def parser_of(name: str, description: str, *, topics: str) -> argparse.ArgumentParser:
    """Return a parser of the shared arguments, to which a pipeline adds its own."""
    parser = argparse.ArgumentParser(
        prog=f"python -m rota_spark.pipelines.{name}", description=description, allow_abbrev=False
    )
    parser.add_argument(
        "--bootstrap-servers",
        required=True,
        help="where the executors read: rota://host:port, or host:port of Kafka",
    )
    parser.add_argument(
        "--group-id",
        default=name.replace("_", "-"),
        help="group of the sidecar that the pipeline starts, unless ROTA_SIDECAR names a running one (default %(default)s)",
    )
    parser.add_argument(
        "--topics",
        default=topics,
        help="topics that the group consumes, separated by commas (default %(default)s)",
    )
    database = parser.add_mutually_exclusive_group(required=True)
    database.add_argument(
        "--database-file",
        metavar="FILE",
        help="file that names the database: sqlite:/path, or a DSN of PostgreSQL",
    )
    database.add_argument(
        "--database-variable",
        metavar="NAME",
        help="variable of driver and executors that names the database, instead of a file",
    )
    parser.add_argument(
        "--max-records-per-batch",
        type=int,
        default=100_000,
        help="records of a micro-batch (default %(default)s)",
    )
    parser.add_argument(
        "--interval", default="1 second", help="interval of the micro-batches (default %(default)s)"
    )
    parser.add_argument("--once", action="store_true", help="process what the topics have now, then exit")
    parser.add_argument(
        "--sidecar-flag",
        action="append",
        default=[],
        help="further flag of the sidecar that the pipeline starts; may be repeated",
    )
    return parser


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Return the settings of the query. Raises InvalidOption."""
    return Settings(
        bootstrap_servers=arguments.bootstrap_servers,
        group_id=arguments.group_id,
        topics=topics_of(arguments.topics),
        max_records_per_batch=arguments.max_records_per_batch,
        client_id=arguments.group_id,
        sidecar_flags=arguments.sidecar_flag,
    )


def connecting_by(arguments: argparse.Namespace) -> Callable[[], Any]:
    """Return a function that connects to the database of a command line."""
    return connecting(arguments.database_file, arguments.database_variable)


def topics_of(text: str) -> Sequence[str]:
    """Split names at commas."""
    return tuple(filter(None, (each.strip() for each in text.split(","))))


def run(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    sink_of: Callable[[argparse.Namespace], SqlSink],
) -> None:
    """Run a pipeline until its query ends; exit with one sentence if it cannot start."""
    arguments = parser.parse_args(argv)
    trigger: Mapping[str, object] = (
        {"availableNow": True} if arguments.once else {"processingTime": arguments.interval}
    )
    try:
        settings, sink = settings_of(arguments), sink_of(arguments)
        spark = SparkSession.builder.appName(arguments.group_id).getOrCreate()
        with process(spark, sink, settings, trigger=trigger) as query:
            query.await_termination()
    except (InvalidOption, MembershipFailed, PipelineFailed) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
