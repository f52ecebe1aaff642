"""
An application for tests that compare numbers of groups: it commits after each record, as MODE says, and stops at one that hangs.

`plain` leaves commits to the sidecar. `transactional` sends each record on to a topic with its offset in one transaction, and hangs
inside of one. `external` commits as an application does whose store has the offset already.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import rota

NOTES, MODE, SERVERS = Path(sys.argv[1]), *sys.argv[2:4]
Work = Callable[[rota.TopicPartition, rota.Record], None]


def note(record: rota.Record) -> None:
    """A line for the test; from a record that begins with "hang" on nothing more is done."""
    value = (record.value or b"").decode()
    with NOTES.open("a") as notes:
        notes.write(f"0 {record.topic} {value}\n")
    if value.startswith("hang"):
        threading.Event().wait()


def consume(consumer: rota.Consumer, work: Work) -> None:
    """One record after the other."""
    while True:
        for partition, records in consumer.poll(timeout_ms=500).items():
            for record in records:
                work(partition, record)


def transactional() -> None:
    """Offsets go with the results."""
    with (
        rota.Producer(SERVERS, transactional_id=NOTES.stem) as producer,
        rota.Consumer(enable_auto_commit=False) as consumer,
    ):
        producer.init_transactions()

        def work(partition: rota.TopicPartition, record: rota.Record) -> None:
            with producer.transaction():
                producer.send("results", record.value)
                producer.send_offsets_to_transaction(
                    {partition: record.offset + 1}, consumer.group_metadata()
                )
                note(record)

        consume(consumer, work)


def external() -> None:
    """Offsets follow the store."""
    with rota.Consumer(enable_auto_commit=False) as consumer:

        def work(partition: rota.TopicPartition, record: rota.Record) -> None:
            note(record)
            consumer.commit({partition: record.offset + 1})

        consume(consumer, work)


def plain() -> None:
    """The sidecar commits."""
    with rota.Consumer() as consumer:
        consume(consumer, lambda _, record: note(record))


{"plain": plain, "transactional": transactional, "external": external}[MODE]()
