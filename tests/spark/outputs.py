"""
Outputs of all members of a group in one database of PostgreSQL, in the order in which they were stored.

Applications and consumers write them with their offsets in one transaction, so that each record has one row after any kill.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import psycopg
from pyspark.sql import DataFrame

TABLES = (
    # No key of the record: a record that is processed twice has two rows.
    """CREATE TABLE outputs (
        written BIGSERIAL PRIMARY KEY, writer TEXT NOT NULL, log_partition INT NOT NULL, log_offset BIGINT NOT NULL
    )""",
    "CREATE TABLE totals (name TEXT PRIMARY KEY, amount BIGINT NOT NULL)",
)
COLUMNS = {"log_partition": "INT", "log_offset": "BIGINT", "name": "TEXT", "amount": "BIGINT"}
NAMES = 7


def name_of(amount: int) -> str:
    """Name under which an amount is summed up."""
    return f"k{amount % NAMES}"


def rows_of(records: DataFrame) -> DataFrame:
    """Rows of the records of a batch."""
    amounts = records.selectExpr("partition", "offset", "CAST(CAST(value AS STRING) AS BIGINT) AS amount")
    return amounts.selectExpr(
        "partition AS log_partition",
        "offset AS log_offset",
        f"concat('k', CAST(amount % {NAMES} AS STRING)) AS name",
        "amount",
    )


def statements(writer: str, rows: str) -> list[str]:
    """Statements that store rows, which `rows` names, in the order of their offsets, and sum them up in the order of names."""
    return [
        f"""INSERT INTO outputs (writer, log_partition, log_offset)
            SELECT '{writer}', log_partition, log_offset FROM {rows} ORDER BY log_partition, log_offset""",
        # In one order, so that two members do not wait for each other's rows.
        f"""INSERT INTO totals AS t SELECT name, sum(amount) FROM {rows} GROUP BY name ORDER BY name
            ON CONFLICT (name) DO UPDATE SET amount = t.amount + excluded.amount""",
    ]


def create_tables(dsn: str, tables: Sequence[str] = TABLES) -> None:
    """Create empty tables."""
    with psycopg.connect(dsn) as connection:
        for each in tables:
            connection.execute(each)


def rows_in(dsn: str, sql: str) -> list[tuple[Any, ...]]:
    """Rows that are committed."""
    with closing(psycopg.connect(dsn)) as connection:
        return connection.execute(sql).fetchall()


def stored(dsn: str) -> int:
    """Number of outputs."""
    ((found,),) = rows_in(dsn, "SELECT count(*) FROM outputs")
    return int(found)


def offsets_of(dsn: str, partition: int) -> list[int]:
    """Offsets of a partition in the order in which they were stored."""
    sql = f"SELECT log_offset FROM outputs WHERE log_partition = {partition} ORDER BY written"
    return [offset for (offset,) in rows_in(dsn, sql)]


def writers(dsn: str) -> Mapping[str, int]:
    """Number of outputs of each member's life."""
    return dict(rows_in(dsn, "SELECT writer, count(*) FROM outputs GROUP BY writer"))


def positions(dsn: str) -> Mapping[tuple[str, int], int]:
    """Offsets in the store."""
    found = rows_in(dsn, "SELECT topic, partition, next_offset FROM rota_offsets WHERE next_offset > 0")
    return {(topic, partition): offset for topic, partition, offset in found}


def owners(dsn: str) -> Mapping[int, str]:
    """Member that fenced each partition last."""
    return dict(rows_in(dsn, "SELECT partition, member_id FROM rota_offsets"))
