"""
Sessions of a click stream, exactly once: `python -m rota_spark.pipelines.clickstream_sessions`.

Spark keeps no state: the tasks of a micro-batch make sessions of its clicks, and the sink's transaction merges them with the
sessions of the same users in the table, by the same gap. Records that are late, or not clicks, go to a dead-letter topic.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row

from rota_spark.core.clicks import Click, Session, click_of, sessions_of
from rota_spark.core.options import InvalidOption
from rota_spark.pipelines.command import connecting_by, parser_of, run
from rota_spark.pipelines.database import PipelineFailed, create_tables, is_postgresql
from rota_spark.pipelines.dead_letters import DeadLetters, Rejected, topic_problem
from rota_spark.sql_sink import SqlSink

NAME = "clickstream_sessions"
TABLES = (
    """CREATE TABLE IF NOT EXISTS sessions (
        user_id TEXT NOT NULL, first_ms BIGINT NOT NULL, last_ms BIGINT NOT NULL, clicks BIGINT NOT NULL,
        PRIMARY KEY (user_id, first_ms)
    )""",
)
COLUMNS = {"user_id": "TEXT", "first_ms": "BIGINT", "last_ms": "BIGINT", "clicks": "BIGINT"}
FOUND = "user_id STRING, first_ms BIGINT, last_ms BIGINT, clicks BIGINT"
READ = ("key", "value", "topic", "partition", "offset", "unix_millis(timestamp)", "headers")


class Rules(NamedTuple):
    """Rules by which clicks become sessions."""

    # Longest pause within a session.
    gap_ms: int
    # Longest time from a click to its record.
    late_ms: int
    # Where rejected records go.
    bootstrap_servers: str
    dead_letter_topic: str
    group_id: str


def clicks_of(rows: Iterable[Row], rules: Rules) -> Iterator[Click]:
    """Parse the records of a task; produce the others to the dead-letter topic."""
    with DeadLetters(rules.bootstrap_servers, rules.dead_letter_topic, rules.group_id) as dead_letters:
        for key, value, topic, partition, offset, timestamp_ms, headers in rows:
            click = click_of(key, value, timestamp_ms, rules.late_ms)
            if click.problem:
                own = [(each.key, each.value) for each in headers or ()]
                record = Rejected(topic, partition, offset, timestamp_ms, key, value, own)
                dead_letters.send(record, click.problem)
            else:
                yield click


def results_of(rules: Rules) -> Callable[[DataFrame], DataFrame]:
    """Return the function that makes sessions of a batch."""

    def sessions(rows: Iterable[Row]) -> list[Session]:
        return sessions_of(clicks_of(rows, rules), rules.gap_ms)

    def results(records: DataFrame) -> DataFrame:
        found = records.selectExpr(*READ).rdd.mapPartitions(sessions)
        return records.sparkSession.createDataFrame(found, FOUND)

    return results


def merge_of(gap_ms: int, *, locks_table: bool) -> list[str]:
    """
    Return the statements that merge the sessions of a batch into the table.

    Invariant of the table: the pause between two sessions of a user is longer than the gap. So only sessions within the gap of
    the batch's first and last click can change. PostgreSQL locks the table until the transaction ends, as a user's partition may
    have moved to another member whose transaction is not committed yet; SQLite has one writer.
    """
    lock = ["LOCK TABLE sessions IN SHARE ROW EXCLUSIVE MODE"] if locks_table else []
    upsert = f"""
        WITH bounds AS (
            SELECT user_id, min(first_ms) AS low_ms, max(last_ms) AS high_ms FROM {{staged}} GROUP BY user_id
        ), found AS (
            SELECT user_id, first_ms, last_ms, clicks FROM {{staged}}
            UNION ALL
            SELECT old.user_id, old.first_ms, old.last_ms, old.clicks FROM sessions AS old JOIN bounds
            ON old.user_id = bounds.user_id
            AND old.last_ms >= bounds.low_ms - {gap_ms} AND old.first_ms <= bounds.high_ms + {gap_ms}
        ), marked AS (
            SELECT user_id, first_ms, last_ms, clicks, CASE WHEN first_ms <= {gap_ms} + max(last_ms) OVER (
                PARTITION BY user_id ORDER BY first_ms, last_ms ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) THEN 0 ELSE 1 END AS begins FROM found
        ), numbered AS (
            SELECT user_id, first_ms, last_ms, clicks,
            sum(begins) OVER (PARTITION BY user_id ORDER BY first_ms, last_ms) AS number FROM marked
        )
        INSERT INTO sessions (user_id, first_ms, last_ms, clicks)
        SELECT user_id, min(first_ms), max(last_ms), sum(clicks) FROM numbered WHERE true GROUP BY user_id, number
        ON CONFLICT (user_id, first_ms) DO UPDATE SET last_ms = excluded.last_ms, clicks = excluded.clicks"""
    # Sessions that are part of a merged one, which begins earlier.
    clean = """
        DELETE FROM sessions WHERE user_id IN (SELECT user_id FROM {staged}) AND EXISTS (
            SELECT 1 FROM sessions AS merged WHERE merged.user_id = sessions.user_id
            AND merged.first_ms < sessions.first_ms AND merged.last_ms >= sessions.first_ms
        )"""
    return [*lock, upsert, clean]


def sink(connect: Callable[[], Any], rules: Rules) -> SqlSink:
    """Create the table, and return the sink of it. Raises PipelineFailed without a dead-letter topic."""
    if problem := topic_problem(rules.bootstrap_servers, rules.dead_letter_topic):
        raise PipelineFailed(problem)
    create_tables(connect, TABLES)
    merge = merge_of(rules.gap_ms, locks_table=is_postgresql(connect))
    return SqlSink(connect, results_of(rules), COLUMNS, merge)


def rules_of(arguments: argparse.Namespace) -> Rules:
    """Return the rules of a command line. Raises InvalidOption."""
    for name, seconds in (
        ("--gap-seconds", arguments.gap_seconds),
        ("--late-seconds", arguments.late_seconds),
    ):
        if seconds < 1:
            raise InvalidOption(f"{name} is {seconds}: use an integer from 1")
    return Rules(
        arguments.gap_seconds * 1000,
        arguments.late_seconds * 1000,
        arguments.bootstrap_servers,
        arguments.dead_letter_topic,
        arguments.group_id,
    )


def arguments_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = parser_of(NAME, "Merge clicks into sessions, in SQL.", topics="clicks")
    parser.add_argument(
        "--dead-letter-topic",
        default="clicks-dead-letters",
        help="topic of late and bad records; it must exist (default %(default)s)",
    )
    parser.add_argument(
        "--gap-seconds", type=int, default=1800, help="longest pause within a session (default %(default)s)"
    )
    parser.add_argument(
        "--late-seconds",
        type=int,
        default=3600,
        help="longest time from a click to the timestamp of its record (default %(default)s)",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the pipeline of a command line."""
    run(
        arguments_parser(),
        argv,
        lambda arguments: sink(connecting_by(arguments), rules_of(arguments)),
    )


if __name__ == "__main__":
    main()
