"""Prices orders, and commits those that are priced. Written for kafka-python."""

import json
import sys

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

CENTS = {"tea": 300, "cup": 900}


def main(servers: str, count: int) -> None:
    """Price so many orders."""
    producer = KafkaProducer(
        bootstrap_servers=servers, value_serializer=lambda order: json.dumps(order).encode()
    )
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id="pricing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        value_deserializer=json.loads,
    )
    consumer.subscribe(["orders"])
    while count > 0:
        sent = []
        for records in consumer.poll(timeout_ms=1000, max_records=100).values():
            for record in records:
                order = {**record.value, "cents": CENTS[record.value["item"]], "sold_at": record.timestamp}
                sent.append(producer.send("priced-orders", value=order, key=record.key))
        try:
            count -= len([future.get(timeout=30) for future in sent])
        except KafkaError as error:
            sys.exit(f"an order was not priced: {error}")
        consumer.commit()
    consumer.close()
    producer.close()


main(sys.argv[1], int(sys.argv[2]))
