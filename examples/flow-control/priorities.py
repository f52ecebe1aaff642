"""
Reads topics by priority: a topic's records are returned when those before it in the list have none left.

    python examples/flow-control/priorities.py rota://127.0.0.1:7070

An urgent record waits for the records of one poll at most: `max_poll_records` bounds its delay. A topic of low priority gets nothing
while the others keep the consumer busy; where it must go on, give it a consumer of its own, in the same process or in another.
Handlers need no such class: the sidecar's setting `priorities` orders what it dispatches to them.
"""

import signal
import sys
from collections.abc import Iterable, Sequence

import rota


class Priorities(rota.RebalanceListener):
    """
    Polls a consumer. Invariant: when a poll begins, the topics behind the first one that has records left are paused.

    A topic has records left if its lag is above `lag_min`. Markers of transactions are counted as lag and never returned: with topics
    that are written in transactions, choose it above 0.
    """

    def __init__(self, consumer: rota.Consumer, topics: Sequence[str], *, lag_min: int = 0) -> None:
        """The topic with the highest priority comes first."""
        self._consumer = consumer
        self._rank = {topic: rank for rank, topic in enumerate(topics)}
        self._lag_min = lag_min

    def poll(self, timeout_ms: float) -> list[rota.Record]:
        """Poll, and return the records, those of the highest priority first."""
        self.adjust()
        polled = self._consumer.poll(timeout_ms)
        return [record for partition in self._by_rank(polled) for record in polled[partition]]

    def adjust(self) -> None:
        """Pause the topics behind the first one that has records left, resume the others: one lookup of end offsets."""
        assigned = self._by_rank(self._consumer.assignment())
        lags = self.lags(assigned)
        last = next((topic for topic, lag in lags.items() if lag > self._lag_min), None)
        behind = {each for each in assigned if last is not None and self._rank[each.topic] > self._rank[last]}
        paused = self._consumer.paused()
        self._consumer.pause(*behind - paused)
        self._consumer.resume(*paused - behind)

    def lags(self, partitions: Sequence[rota.TopicPartition]) -> dict[str, int]:
        """Records from this member's positions to the ends of its partitions, by topic, in the order of the partitions."""
        lags = {partition.topic: 0 for partition in partitions}
        ends = self._consumer.end_offsets(partitions) if partitions else {}
        for partition, end in ends.items():
            lags[partition.topic] += end - self._consumer.position(partition)
        return lags

    def _by_rank(self, partitions: Iterable[rota.TopicPartition]) -> list[rota.TopicPartition]:
        return sorted(partitions, key=lambda each: (self._rank[each.topic], each.partition))

    def on_partitions_assigned(self, partitions: Sequence[rota.TopicPartition]) -> None:
        """Before any record of the new partitions is returned."""
        self.adjust()


def main(servers: str) -> None:
    stops: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stops.append(number))
    topics = ["alarms", "orders", "reports"]
    with rota.Consumer(group_id="priorities", bootstrap_servers=servers, max_poll_records=50) as consumer:
        priorities = Priorities(consumer, topics)
        consumer.subscribe(topics, listener=priorities)
        while not stops:
            for record in priorities.poll(timeout_ms=100):
                print(record.topic, record.offset, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
