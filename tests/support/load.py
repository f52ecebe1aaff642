"""Load of a topic: records that are sent at a rate, which a test changes. Called by the tests of the autoscaler, on a laptop and in pods."""

import threading
from types import TracebackType
from typing import Self

import rota


class Load:
    """Sends records within its block, to all partitions in turn."""

    def __init__(self, address: str, topic: str, partitions: int, per_second: float) -> None:
        self.per_second = per_second
        self.sent = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send, args=(address, topic, partitions))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more; returns once all are sent."""
        self._stopping.set()
        self._thread.join()

    def _send(self, address: str, topic: str, partitions: int) -> None:
        with rota.Producer(address) as producer:
            while not self._stopping.wait(1 / self.per_second):
                producer.send(topic, b"%d" % self.sent, partition=self.sent % partitions)
                self.sent += 1
            producer.flush()
