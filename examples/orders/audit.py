"""
Counts orders and prices: `python audit.py SERVERS [PAGE]`.

With the page of `rota up` it waits until the shop has closed, and then for the members to process what was sold last.
"""

import json
import os
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import rota

SHOP = "orders-shop"
# For Kafka: librdkafka's properties, such as those for TLS and SASL.
KAFKA_CONFIG = json.loads(os.environ.get("KAFKA_CONFIG", "{}"))
# Of a shop that has closed: the page tells of a change up to four times a second, and at least each second.
COUNTS_MAX = 60


def main() -> None:
    """Print the counts in one line; exit with 1 while an order is unprocessed."""
    servers = sys.argv[1]
    unprocessed, counts = count_when_closed(servers, sys.argv[2]) if len(sys.argv) > 2 else count(servers)
    print(counts)
    sys.exit(1 if unprocessed else 0)


def count_when_closed(servers: str, page: str) -> tuple[int, str]:
    """The counts once no process of the shop runs and every order is processed, or the last of COUNTS_MAX."""
    shown = states(page)
    for number, state in enumerate(shown):
        if not is_open(state):
            break
        if number == 0:
            print(f"waiting for the shop to close: scale {SHOP} to 0", file=sys.stderr, flush=True)
    unprocessed, counts = count(servers)
    for _ in islice(shown, COUNTS_MAX):
        if not unprocessed:
            break
        unprocessed, counts = count(servers)
    return unprocessed, counts


def is_open(state: dict[str, Any]) -> bool:
    """Return True while a process of the shop runs."""
    return any(each["replicas"] for each in state["workloads"] if each["name"] == SHOP)


def states(page: str) -> Iterator[dict[str, Any]]:
    """Yield the page's state, now and after each change."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"{page}/api/events") as events:
        for line in events:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def count(servers: str) -> tuple[int, str]:
    """The number of unprocessed orders, and all counts in one line."""
    # In this order: of what is sold meanwhile nothing has its price before it is sold.
    priced, sold = orders_in(servers, "priced-orders"), orders_in(servers, "orders")
    unprocessed = len(sold.keys() - priced.keys())
    repeated = priced.total() - len(priced)
    return (
        unprocessed,
        f"produced {sold.total()}, processed {len(priced)}, unprocessed {unprocessed}, repeated {repeated}",
    )


def orders_in(address: str, topic: str) -> Counter[str]:
    """Count the occurrences of each order in a topic."""
    values = values_in_log if address.startswith("rota://") else values_in_kafka
    return Counter(json.loads(value or b"{}")["order"] for value in values(address, topic))


def values_in_log(address: str, topic: str) -> Iterator[bytes | None]:
    """Yield the values of all records of a topic of Rota's log."""
    with rota.Topics(address) as topics:
        (described,) = topics.describe([topic])
    positions = {(topic, number): 0 for number in range(described.partitions)}
    with rota.LogReader(address) as reader:
        behind = True
        while behind:
            behind = False
            for fetched in reader.fetch(positions, max_wait_ms=0):
                yield from (record.value for record in fetched)
                positions[fetched.topic, fetched.partition] = fetched.next_offset
                behind = behind or fetched.next_offset < fetched.high_watermark


def values_in_kafka(address: str, topic: str) -> Iterator[bytes | None]:
    """Yield the values of all records of a topic of Kafka's brokers."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    settings = {"group.id": "audit", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": address, **settings, **KAFKA_CONFIG})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    ended: set[int | None] = set()
    while len(ended) < len(partitions):
        if (message := consumer.poll(1)) is None:
            continue
        if (error := message.error()) is None:
            yield message.value()
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        else:
            raise KafkaException(error)
    consumer.close()


if __name__ == "__main__":
    main()
