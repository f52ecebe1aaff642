"""Writes a receipt for each payment, exactly once: receipts and offsets are in one transaction."""

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence

import rota


def main() -> None:
    """
    Bill until it is asked to end.

    After an error of a transaction nothing of it counts. The process ends then, and its next life begins where the last
    transaction that counts has ended.
    """
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    # One id for each process, whichever partitions it owns: the group's generation fences a former owner of a partition. A process that
    # starts under the same name ends the transaction that this one has left open; without one, its timeout does.
    name = f"biller-{os.environ['REPLICA']}"
    with (
        rota.Producer(sys.argv[1], transactional_id=name) as producer,
        rota.Consumer("payments", enable_auto_commit=False) as consumer,
    ):
        producer.init_transactions()
        while not ends.is_set():
            if polled := consumer.poll(timeout_ms=500):
                bill(producer, consumer, polled)


Polled = Mapping[rota.TopicPartition, Sequence[rota.Record]]


def bill(producer: rota.Producer, consumer: rota.Consumer, polled: Polled) -> None:
    """All of these, or none."""
    with producer.transaction():
        for records in polled.values():
            for record in records:
                payment = json.loads(record.value or b"{}")
                receipt = {"payment": payment["payment"], "text": f"{payment['cents'] / 100:.2f} received"}
                producer.send("receipts", json.dumps(receipt).encode(), key=record.key)
        producer.send_offsets_to_transaction(
            {partition: records[-1].offset + 1 for partition, records in polled.items()},
            consumer.group_metadata(),
        )


if __name__ == "__main__":
    main()
