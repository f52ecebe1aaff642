"""
A plain consumer that shares its group with Spark applications, until it is stopped; see `tests.spark.shared_group`.

After a fence it begins anew where the store is, as the guide of `rota.stores` says.
"""

import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

import rota
from rota.stores import SqlStore, StoreError
from tests.spark.outputs import name_of, statements

log = logging.getLogger(__name__)
POLL_MS = 200
BATCH = 50
ROWS = (
    "(SELECT * FROM unnest(%(partitions)s::int[], %(offsets)s::bigint[], %(names)s::text[], %(amounts)s::bigint[])"
    " AS r (log_partition, log_offset, name, amount)) AS rows"
)


def arrays(records: Sequence[rota.Record]) -> Mapping[str, Sequence[object]]:
    """Columns of the rows of records."""
    amounts = [int(each.value or b"") for each in records]
    return {
        "partitions": [each.partition for each in records],
        "offsets": [each.offset for each in records],
        "names": [name_of(each) for each in amounts],
        "amounts": amounts,
    }


def consume(consumer: rota.Consumer, connection: psycopg.Connection[Any], topic: str, writer: str) -> None:
    """Store records as a member of the group, until its fence is refused."""
    store = SqlStore(connection)
    listener = store.listener(consumer)
    consumer.subscribe(topic, listener=listener)
    while True:
        for partition, records in consumer.poll(timeout_ms=POLL_MS).items():
            with store.transaction(listener.tenure) as tx:
                for each in statements(writer, ROWS):
                    connection.execute(each, arrays(records))
                tx.save({partition: records[-1].offset + 1})
        consumer.commit_async()


def main(servers: str, group: str, database_file: str, writer: str) -> None:
    """Run until SIGTERM."""
    logging.basicConfig(level=logging.INFO)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    dsn = Path(database_file).read_text()
    with psycopg.connect(dsn) as connection:
        SqlStore(connection).create_tables()
    while True:
        try:
            with (
                psycopg.connect(dsn) as connection,
                rota.Consumer(
                    bootstrap_servers=servers,
                    group_id=group,
                    client_id=writer,
                    enable_auto_commit=False,
                    max_poll_records=BATCH,
                    session_timeout_ms=6_000,
                    heartbeat_interval_ms=500,
                    sidecar_flags=["--commit-mode=external"],
                ) as consumer,
            ):
                consume(consumer, connection, group, writer)
        except StoreError as error:
            log.warning("a new consumer begins where the store is: %s", error)


if __name__ == "__main__":
    main(*sys.argv[1:])
