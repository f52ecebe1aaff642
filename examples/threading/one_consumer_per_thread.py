"""
One consumer for each thread: the simplest way to use several cores for work that waits.

Each is a member of the group with partitions of its own, so order per partition is kept, and commits need no thought.

    python examples/threading/one_consumer_per_thread.py rota://127.0.0.1:7070
"""

import signal
import sys
import threading
from collections.abc import Callable

import rota


class Worker(threading.Thread):
    """A thread with its own consumer. Invariant: other threads call only the consumer's `wakeup`."""

    def __init__(
        self, work: Callable[[rota.Record], object], make_consumer: Callable[[], rota.Consumer]
    ) -> None:
        super().__init__()
        self._work = work
        self._make_consumer = make_consumer
        self._stops = threading.Event()
        self._consumer: rota.Consumer | None = None

    def run(self) -> None:
        with self._make_consumer() as consumer:
            self._consumer = consumer
            while not self._stops.is_set():
                try:
                    polled = consumer.poll(timeout_ms=1_000)
                except rota.errors.WokenUp:
                    continue
                for records in polled.values():
                    for record in records:
                        self._work(record)

    def stop(self) -> None:
        """Finish what was polled, and end; from any thread."""
        self._stops.set()
        if self._consumer is not None:
            self._consumer.wakeup()


def main(servers: str, threads: int = 3) -> None:
    def make_consumer() -> rota.Consumer:
        return rota.Consumer("orders", group_id="one-each", bootstrap_servers=servers)

    workers = [Worker(lambda record: print(record.value), make_consumer) for _ in range(threads)]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: [worker.stop() for worker in workers])
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main(sys.argv[1])
