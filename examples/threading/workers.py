"""
One thread polls, others work: for work that is slower than reading.

Each partition has one worker at a time, so its order is kept. It is paused meanwhile, so polls go on and bring no more of
it than is being worked on. Committed is only what the workers have finished.

    python examples/threading/workers.py rota://127.0.0.1:7070
"""

import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import rota

Records = Sequence[rota.Record]


class Crew(rota.RebalanceListener):
    """Workers and what each of them has, by partition. It belongs to the thread that polls."""

    def __init__(self, consumer: rota.Consumer, work: Callable[[rota.Record], object], workers: int) -> None:
        self._consumer = consumer
        self._work = work
        self._pool = ThreadPoolExecutor(workers)
        self._busy: dict[rota.TopicPartition, Future[int]] = {}

    def poll(self, timeout_ms: float) -> None:
        """Hand out what came, take in what is finished."""
        self.settle(partition for partition, future in list(self._busy.items()) if future.done())
        for partition, records in self._consumer.poll(timeout_ms).items():
            self._consumer.pause(partition)
            self._busy[partition] = self._pool.submit(self._work_through, records)

    def _work_through(self, records: Records) -> int:
        for record in records:
            self._work(record)
        return records[-1].offset + 1

    def settle(self, partitions: Iterable[rota.TopicPartition]) -> None:
        """Wait for the workers of these, and commit what they did."""
        futures = {each: self._busy.pop(each) for each in partitions if each in self._busy}
        wait(futures.values())
        if futures:
            self._consumer.commit({each: future.result() for each, future in futures.items()})
            self._consumer.resume(*futures)

    def on_partitions_revoked(self, partitions: Sequence[rota.TopicPartition]) -> None:
        self.settle(partitions)

    def on_partitions_lost(self, partitions: Sequence[rota.TopicPartition]) -> None:
        """Nothing can be committed any more; what they still do is done again elsewhere."""
        for partition in partitions:
            self._busy.pop(partition, None)

    def close(self) -> None:
        self.settle(list(self._busy))
        self._pool.shutdown()


def main(servers: str) -> None:
    consumer = rota.Consumer(group_id="workers", bootstrap_servers=servers, enable_auto_commit=False)
    stops: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stops.append(number))
    with consumer:
        crew = Crew(consumer, lambda record: print(record.value), workers=8)
        consumer.subscribe("orders", listener=crew)
        while not stops:
            crew.poll(timeout_ms=100)
        crew.close()


if __name__ == "__main__":
    main(sys.argv[1])
