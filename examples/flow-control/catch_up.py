"""
Lets one topic catch up: while it lags, the other topics are paused.

A consumer of payments and clicks is to know the payments before it reads clicks on them. It stays a member of its group
meanwhile and keeps all partitions, for paused partitions are not revoked.

    python examples/flow-control/catch_up.py rota://127.0.0.1:7070
"""

import signal
import sys
from collections.abc import Sequence

import rota


class CatchUp(rota.RebalanceListener):
    """
    Polls a consumer. Invariant: when a poll begins, the other topics are paused exactly if `is_behind`.

    Lag is the number of records from this member's positions to the ends of its partitions. `is_behind` begins when the topic's
    lag is above `lag_max`, and ends when it is `lag_min`; with one limit for both, topics would be paused and resumed in turns.
    Markers of transactions are counted and never returned: give a topic that is written in transactions a higher `lag_min`.
    """

    def __init__(
        self, consumer: rota.Consumer, topic: str, *, lag_max: int = 1_000, lag_min: int = 0
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._lag_max = lag_max
        self._lag_min = lag_min
        self.is_behind = False

    def poll(self, timeout_ms: float) -> dict[rota.TopicPartition, list[rota.Record]]:
        self.adjust()
        return self._consumer.poll(timeout_ms)

    def adjust(self) -> None:
        """Measure the lag, and pause or resume the others: one lookup of end offsets."""
        self.is_behind = self.lag() > (self._lag_min if self.is_behind else self._lag_max)
        others = {each for each in self._consumer.assignment() if each.topic != self._topic}
        if self.is_behind:
            self._consumer.pause(*others - self._consumer.paused())
        else:
            self._consumer.resume(*others & self._consumer.paused())

    def lag(self) -> int:
        partitions = [each for each in self._consumer.assignment() if each.topic == self._topic]
        ends = self._consumer.end_offsets(partitions) if partitions else {}
        return sum(end - self._consumer.position(partition) for partition, end in ends.items())

    def on_partitions_assigned(self, partitions: Sequence[rota.TopicPartition]) -> None:
        """Before any record of the new partitions is returned."""
        self.adjust()


def main(servers: str) -> None:
    stops: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stops.append(number))
    with rota.Consumer(group_id="catch-up", bootstrap_servers=servers, max_poll_records=100) as consumer:
        catch_up = CatchUp(consumer, "payments", lag_max=100)
        consumer.subscribe(["payments", "clicks"], listener=catch_up)
        while not stops:
            for partition, records in catch_up.poll(timeout_ms=100).items():
                for record in records:
                    print(partition.topic, record.offset, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
