"""A shop: makes its topic and its table of prices, and sells as many a second as it is told to, until it is asked to end."""

import json
import os
import random
import signal
import sys
import threading
import uuid
from contextlib import closing

import rota
from rota_spark.pipelines.database import connected_to

PRICES = {"apple": 40, "bread": 310, "cheese": 560, "date": 25, "egg": 35}


def main() -> None:
    """Sell."""
    address, a_second = sys.argv[1], float(os.environ.get("ORDERS_A_SECOND", "100"))
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    with closing(connected_to(os.environ["ORDERS_DATABASE"])) as database:
        database.execute("CREATE TABLE IF NOT EXISTS goods (good TEXT PRIMARY KEY, cents BIGINT NOT NULL)")
        for good, cents in PRICES.items():
            database.execute(
                f"INSERT INTO goods (good, cents) VALUES ('{good}', {cents}) ON CONFLICT (good) DO NOTHING"
            )
        database.commit()
    # Whoever comes first makes it.
    rota.create_topics(address, {"orders": 12})
    with rota.Producer(address) as producer:
        while not ends.wait(1 / a_second):
            order = {
                "order": uuid.uuid4().hex,
                "good": random.choice(list(PRICES)),
                "count": random.randint(1, 9),
            }
            customer = f"customer-{random.randrange(1000)}"
            producer.send("orders", json.dumps(order).encode(), key=customer.encode())


if __name__ == "__main__":
    main()
