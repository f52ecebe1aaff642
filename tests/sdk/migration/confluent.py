"""Writes a receipt for each order, and commits those that are written. Written for confluent-kafka."""

import json
import sys

from confluent_kafka import Consumer, KafkaException, Producer

CONFIG = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}


def check(error: object, message: object) -> None:
    """End if a receipt was not written."""
    if error is not None:
        sys.exit(f"a receipt was not written: {error}")


def main(servers: str, count: int) -> None:
    """Write so many receipts."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True})
    consumer = Consumer({"bootstrap.servers": servers, **CONFIG})
    consumer.subscribe(["orders"])
    while count > 0:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        order = json.loads(message.value() or b"{}")
        receipt = {"order": order["order"], "text": f"one {order['item']}"}
        producer.produce("receipts", json.dumps(receipt), key=message.key(), on_delivery=check)
        count -= 1
        if count % 100 == 0:  # also after the last one
            producer.flush()
            consumer.commit(asynchronous=False)
    consumer.close()


main(sys.argv[1], int(sys.argv[2]))
