"""
Orders with their prices, exactly once: `python -m rota_spark.pipelines.orders_enrichment`.

For each micro-batch the driver reads the table `goods`, the tasks parse the orders, and Spark joins both. The sink's transaction
then upserts `enriched_orders` by the order, and `rejected_orders`, which has each record that is not an order or whose good is
unknown, with the problem. So every record of the topic is in one of the two tables.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sql

from rota_spark.core.json_values import text_of
from rota_spark.core.orders import order_of
from rota_spark.pipelines.command import connecting_by, parser_of, run
from rota_spark.pipelines.database import PipelineFailed, create_tables, rows_of
from rota_spark.sql_sink import SqlSink

NAME = "orders_enrichment"
GOODS_MAX = 100_000
GOODS = "SELECT good, cents FROM goods"
TABLES = (
    """CREATE TABLE IF NOT EXISTS enriched_orders (
        order_id TEXT PRIMARY KEY, customer TEXT, good TEXT NOT NULL, quantity BIGINT NOT NULL, cents BIGINT NOT NULL,
        log_topic TEXT NOT NULL, log_partition INTEGER NOT NULL, log_offset BIGINT NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS rejected_orders (
        log_topic TEXT NOT NULL, log_partition INTEGER NOT NULL, log_offset BIGINT NOT NULL, problem TEXT NOT NULL,
        record_value TEXT, PRIMARY KEY (log_topic, log_partition, log_offset)
    )""",
)
PARSED = (
    "customer STRING, order_id STRING, good STRING, quantity BIGINT, problem STRING, record_value STRING, "
    "log_topic STRING, log_partition INT, log_offset BIGINT"
)
COLUMNS = {
    "order_id": "TEXT",
    "customer": "TEXT",
    "good": "TEXT",
    "quantity": "BIGINT",
    "cents": "BIGINT",
    "log_topic": "TEXT",
    "log_partition": "INTEGER",
    "log_offset": "BIGINT",
    "problem": "TEXT",
    "record_value": "TEXT",
}
ENRICHED = "order_id, customer, good, quantity, cents, log_topic, log_partition, log_offset"
REJECTED = "log_topic, log_partition, log_offset, problem, record_value"
MERGE = (
    # The last record of an order counts, and rows are locked in the same order by all members.
    f"""INSERT INTO enriched_orders ({ENRICHED})
        SELECT {ENRICHED} FROM (
            SELECT {ENRICHED}, row_number() OVER (
                PARTITION BY order_id ORDER BY log_topic DESC, log_partition DESC, log_offset DESC
            ) AS newest FROM {{staged}} WHERE problem IS NULL
        ) AS numbered WHERE newest = 1 ORDER BY order_id
        ON CONFLICT (order_id) DO UPDATE SET
            customer = excluded.customer, good = excluded.good, quantity = excluded.quantity, cents = excluded.cents,
            log_topic = excluded.log_topic, log_partition = excluded.log_partition, log_offset = excluded.log_offset""",
    f"""INSERT INTO rejected_orders ({REJECTED})
        SELECT {REJECTED} FROM {{staged}} WHERE problem IS NOT NULL
        ON CONFLICT (log_topic, log_partition, log_offset) DO UPDATE SET problem = excluded.problem""",
)


def parsed(rows: Iterable[Row]) -> Iterator[tuple[object, ...]]:
    """Parse the records of a task."""
    for key, value, topic, partition, offset in rows:
        order = order_of(value)
        yield (text_of(key), *order, text_of(value), topic, partition, offset)


def enriched(records: DataFrame, goods: Sequence[tuple[str, int]]) -> DataFrame:
    """Join the orders of a batch with the prices of goods; a good that is unknown is a problem of its order."""
    spark = records.sparkSession
    rows = records.select("key", "value", "topic", "partition", "offset").rdd.mapPartitions(parsed)
    orders = spark.createDataFrame(rows, PARSED)
    prices = spark.createDataFrame(list(goods), "good STRING, price BIGINT")
    priced = orders.join(sql.broadcast(prices), "good", "left").withColumn(
        "cents", sql.expr("price * quantity")
    )
    problem = "CASE WHEN price IS NULL THEN concat('the table goods has no price of ', good) END"
    judged = priced.withColumn("problem", sql.expr(f"coalesce(problem, {problem})"))
    return judged.withColumn("record_value", sql.expr("CASE WHEN problem IS NOT NULL THEN record_value END"))


def goods_in(connect: Callable[[], Any]) -> list[tuple[str, int]]:
    """Read the table of goods. Raises PipelineFailed if it is missing, has other columns, or is too large to be sent to tasks."""
    try:
        found = rows_of(connect, f"{GOODS} LIMIT {GOODS_MAX + 1}")
    except PipelineFailed:
        raise
    except Exception as error:
        raise PipelineFailed(
            f"the table goods cannot be read ({str(error).strip()}): it needs the columns good (text) and cents (integer), in the database "
            "that --database-file names"
        ) from error
    if len(found) > GOODS_MAX:
        raise PipelineFailed(
            f"the table goods has more than {GOODS_MAX:,} rows: remove goods that are not sold"
        )
    return [(str(good), int(cents)) for good, cents in found]


def sink(connect: Callable[[], Any]) -> SqlSink:
    """Create the tables, and return the sink of them."""
    create_tables(connect, TABLES)
    goods_in(connect)

    def results(records: DataFrame) -> DataFrame:
        return enriched(records, goods_in(connect))

    return SqlSink(connect, results, COLUMNS, MERGE)


def arguments_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    return parser_of(NAME, "Join orders with the table goods, and upsert them into SQL.", topics="orders")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the pipeline of a command line."""
    run(arguments_parser(), argv, lambda arguments: sink(connecting_by(arguments)))


if __name__ == "__main__":
    main()
