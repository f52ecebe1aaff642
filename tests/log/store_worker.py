"""
One owner of the store job, as a process: adds up what the records of its partitions hold, in PostgreSQL. `rota.Consumer`
reads, and each transaction of `rota.stores` keeps totals and offset together.

It tells what happens to it, a line for each event, and stops itself (SIGSTOP) in mid-transaction where it is told to. Run
as `python -m tests.log.store_worker`, with the database in STORE_JOB_DSN; SIGTERM ends it.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass

import psycopg
from typing_extensions import override

import rota
from rota.consumer.listeners import Partitions
from rota.stores import Partition, SqlStore, StoreFenced
from rota.stores.listener import StoreListener

TOPIC = "orders"
PARTITIONS = [(TOPIC, 0), (TOPIC, 1)]
RECORDS = 400
BATCH = 10
KEYS = 3
POLL_MS = 500
# Where a worker can stop: its transaction is open, and holds no lock yet; its results are written, and their rows locked.
POINTS = ("begun", "written")

Connection = psycopg.Connection[tuple[object, ...]]


def totals(records: Iterable[tuple[Partition, int, int]]) -> dict[str, int]:
    """The values of records (partition, offset, value), added up under some keys of each partition."""
    sums: dict[str, int] = {}
    for (_, index), offset, value in records:
        key = f"{index}/{offset % KEYS}"
        sums[key] = sums.get(key, 0) + value
    return sums


def write(connection: Connection, sums: dict[str, int]) -> None:
    """Add to what is there."""
    for key, value in sorted(sums.items()):
        connection.execute(
            "INSERT INTO totals VALUES (%s, %s) "
            "ON CONFLICT (key) DO UPDATE SET value = totals.value + excluded.value",
            (key, value),
        )


def add_up(consumer: rota.Consumer, connection: Connection, stop: "Stop") -> None:
    """As one member of the group, until the fence stops it."""
    store = SqlStore(connection)
    listener = store.listener(consumer)
    consumer.subscribe(TOPIC, listener=LoggingListener(listener))
    while True:
        for partition, records in consumer.poll(timeout_ms=POLL_MS).items():
            with store.transaction(listener.tenure) as tx:
                stop.reached("begun")
                write(connection, totals((partition, each.offset, int(each.value)) for each in records))
                stop.reached("written")
                tx.save({partition: records[-1].offset + 1})
        # The store is the truth; the group's offsets are for those who look on.
        consumer.commit_async()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--coordinator", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--stop-at", choices=POINTS, default="")
    parser.add_argument("--stop-after", type=int, default=0, help="in which transaction")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    say("started", os.getpid())
    stop = Stop(options.stop_at, options.stop_after)
    while True:
        try:
            with (
                psycopg.connect(os.environ["STORE_JOB_DSN"]) as connection,
                rota.Consumer(
                    group_id=options.group,
                    bootstrap_servers=f"rota://{options.coordinator}",
                    enable_auto_commit=False,
                    max_poll_records=BATCH,
                    max_poll_interval_ms=2_000,
                    session_timeout_ms=2_000,
                    heartbeat_interval_ms=500,
                    sidecar_flags=["--commit-mode=external"],
                ) as consumer,
            ):
                add_up(consumer, connection, stop)
        except StoreFenced as fenced:
            # Somebody else has the partitions: a new consumer begins where the store is.
            say("fenced", fenced)


def say(event: str, *fields: object) -> None:
    """Tell the test."""
    sys.stdout.write(" ".join(map(str, (event, *fields))) + "\n")
    sys.stdout.flush()


@dataclass
class LoggingListener(rota.RebalanceListener):
    """Tells the test what the store's listener has done."""

    listener: StoreListener

    @override
    def on_partitions_assigned(self, partitions: Partitions) -> None:
        self.listener.on_partitions_assigned(partitions)
        tenure = self.listener.tenure
        say(
            "assigned",
            *(tenure.group.incarnation, tenure.group.generation_id),
            *sorted(tenure.positions.items()),
        )

    @override
    def on_partitions_revoked(self, partitions: Partitions) -> None:
        self.listener.on_partitions_revoked(partitions)


@dataclass
class Stop:
    """The test's hand in a transaction."""

    point: str
    # Transactions until then.
    after: int

    def reached(self, point: str) -> None:
        self.after -= point == POINTS[0]
        if (point, self.after) == (self.point, 0):
            say("stopping", point)
            # This very thread, so that it does not go on until another one has taken the signal.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


if __name__ == "__main__":
    main()
