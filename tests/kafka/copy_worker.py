"""
One copier of the copy job on a Kafka broker, as a process: confluent-kafka reads, `rota.Producer` writes.

It says how far it has come, a line for each transaction. Run as `python -m tests.kafka.copy_worker`.
"""

import argparse
import sys

from confluent_kafka import Consumer, KafkaError, KafkaException

import rota
from tests.log.copies import PARTITIONS, Pair, copy
from tests.support.kafka.membership import metadata_of

BATCH = 500
POLL_S = 1.0


def say(event: str, *facts: object) -> None:
    """Tell the test."""
    sys.stdout.write(" ".join(map(str, (event, *facts))) + "\n")
    sys.stdout.flush()


def copy_all(consumer: Consumer, producer: rota.Producer, source: str, target: str) -> None:
    """To the ends of all partitions."""
    producer.init_transactions()
    consumer.subscribe([source], on_assign=lambda _, partitions: say("assigned", len(partitions)))
    positions: dict[tuple[str, int], int] = {}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        records: list[tuple[int, Pair]] = []
        after: dict[tuple[str, int], int] = {}
        for message in consumer.consume(BATCH, timeout=POLL_S):
            partition, offset, error = message.partition(), message.offset(), message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            assert partition is not None
            assert offset is not None
            if error is not None:
                ended.add(partition)
                continue
            records.append((partition, (message.key(), message.value())))
            after[source, partition] = offset + 1
        if records:
            copy(producer, target, records, (after, metadata_of(consumer)), lambda point: None)
            positions |= after
            say("copied", sum(positions.values()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    options = parser.parse_args()
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": options.target,
            # The next one takes its place at once.
            "group.instance.id": "copier",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    with rota.Producer(options.bootstrap, transactional_id=options.target) as producer:
        copy_all(consumer, producer, options.source, options.target)
    consumer.close()
    say("done")


if __name__ == "__main__":
    main()
