"""A site whose users click: makes its topics, and records as many clicks a second as it is told to, until it is asked to end."""

import json
import os
import random
import signal
import sys
import threading
import time

import rota

USERS = 200


def click(user: str, now_ms: int) -> bytes:
    """A click of this moment, as the pipeline reads it."""
    return json.dumps({"user": user, "at_ms": now_ms}).encode()


def main() -> None:
    """Record clicks."""
    address, a_second = sys.argv[1], float(os.environ.get("CLICKS_A_SECOND", "100"))
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    # Whoever comes first makes them.
    rota.create_topics(address, {"clicks": 12, "clicks-dead-letters": 1})
    with rota.Producer(address) as producer:
        while not ends.wait(1 / a_second):
            user = f"user-{random.randrange(USERS)}"
            producer.send("clicks", click(user, time.time_ns() // 1_000_000), key=user.encode())


if __name__ == "__main__":
    main()
