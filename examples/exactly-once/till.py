"""A till: makes its topics, and takes payments until it is asked to end."""

import json
import os
import random
import signal
import sys
import threading
import uuid

import rota


def main() -> None:
    """Take payments."""
    address, a_second = sys.argv[1], float(os.environ.get("PAYMENTS_A_SECOND", "100"))
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    # Whoever comes first makes them.
    rota.create_topics(address, {"payments": 6, "receipts": 6})
    with rota.Producer(address) as producer:
        while not ends.wait(1 / a_second):
            payment = {"payment": uuid.uuid4().hex, "cents": random.randint(1, 99_999)}
            account = f"account-{random.randrange(1000)}"
            producer.send("payments", json.dumps(payment).encode(), key=account.encode())


if __name__ == "__main__":
    main()
