"""A shop: makes its topics, and sells as many a second as it is told to, until it is asked to end."""

import json
import os
import random
import signal
import sys
import threading
import uuid

import rota

# For Kafka: librdkafka's properties, such as those for TLS and SASL.
KAFKA_CONFIG = json.loads(os.environ.get("KAFKA_CONFIG", "{}"))
GOODS = ("apple", "bread", "cheese", "date", "egg")


def main() -> None:
    """Sell."""
    address, a_second = sys.argv[1], float(os.environ.get("ORDERS_A_SECOND", "100"))
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    # Whoever comes first makes them.
    rota.create_topics(address, {"orders": 12, "priced-orders": 12}, kafka_config=KAFKA_CONFIG)
    with rota.Producer(address, kafka_config=KAFKA_CONFIG) as producer:
        while not ends.wait(1 / a_second):
            order = {"order": uuid.uuid4().hex, "good": random.choice(GOODS), "count": random.randint(1, 9)}
            customer = f"customer-{random.randrange(1000)}"
            producer.send("orders", json.dumps(order).encode(), key=customer.encode())


if __name__ == "__main__":
    main()
