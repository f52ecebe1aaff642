"""Restart of a static member's application, once on Rota and once on Kafka."""

import os
import signal
from collections.abc import Sequence

from typing_extensions import override

import rota
from rota.consumer.listeners import Partitions
from tests.sdk.consumer.own_sidecar import process_of

POLL_MS = 50
POLLS_MAX = 400
HEARTBEAT_MS = 300


class Calls(rota.RebalanceListener):
    """All that it is told, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Sequence[rota.TopicPartition]]] = []

    @override
    def on_partitions_assigned(self, partitions: Partitions) -> None:
        self.events.append(("assigned", sorted(partitions)))

    @override
    def on_partitions_revoked(self, partitions: Partitions) -> None:
        self.events.append(("revoked", sorted(partitions)))

    @override
    def on_partitions_lost(self, partitions: Partitions) -> None:
        self.events.append(("lost", sorted(partitions)))


class Pair:
    """Two static members that share four partitions."""

    def __init__(self, topic: str, servers: str) -> None:
        self._topic = topic
        self._servers = servers
        self.calls = Calls()
        self.values: list[bytes] = []
        self.staying, self.going = self._made("staying"), self._made("going")
        self.staying.subscribe(topic, listener=self.calls)
        self.going.subscribe(topic)

    def _made(self, name: str) -> rota.Consumer:
        return rota.Consumer(
            group_id=self._topic,
            bootstrap_servers=self._servers,
            group_instance_id=name,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )

    def poll_until_shared(self) -> None:
        """Both have their half, and know of the same generation."""
        for _ in range(POLLS_MAX):
            self._poll()
            both = (self.staying, self.going)
            if [len(each.assignment()) for each in both] == [2, 2] and len(set(self.generations)) == 1:
                return
        raise AssertionError(f"they share nothing: {self.staying.assignment()}, {self.going.assignment()}")

    def poll_until(self, values: Sequence[bytes]) -> None:
        """Assert that these records have come, once each, and nothing else since."""
        for _ in range(POLLS_MAX):
            self._poll()
            if len(self.values) >= len(values):
                break
        assert sorted(self.values) == sorted(values)
        self.values.clear()

    def _poll(self) -> None:
        for each in (self.staying, self.going):
            for records in each.poll(timeout_ms=POLL_MS).values():
                self.values += [record.value for record in records]

    @property
    def generations(self) -> list[int]:
        """As each of them knows it."""
        return [each.group_metadata().generation_id for each in (self.staying, self.going)]

    def restart(self, *, killed: bool) -> None:
        """The application that goes comes back under the same name."""
        if killed:
            os.kill(process_of(self.going).pid, signal.SIGKILL)
        self.going.close()
        self.going = self._made("going")
        self.going.subscribe(self._topic)

    def close(self) -> None:
        """Both."""
        self.staying.close()
        self.going.close()


def restart_moves_nothing(topic: str, servers: str, *, killed: bool) -> None:
    """Assert that records keep coming, each once, to the previous owner, and that no rebalance is reported."""
    with rota.Producer(servers, linger_ms=0) as producer:

        def send(values: Sequence[bytes]) -> None:
            for number, value in enumerate(values):
                producer.send(topic, value, partition=number % 4).result(30)

        before, after = ([b"%s %d" % (when, number) for number in range(8)] for when in (b"before", b"after"))
        pair = Pair(topic, servers)
        try:
            pair.poll_until_shared()
            send(before)
            pair.poll_until(before)
            for each in (pair.staying, pair.going):
                each.commit()
            calls, generations = list(pair.calls.events), pair.generations
            shares = pair.staying.assignment(), pair.going.assignment()
            pair.restart(killed=killed)
            send(after)
            pair.poll_until_shared()
            pair.poll_until(after)
            assert (pair.staying.assignment(), pair.going.assignment()) == shares
            assert pair.generations == generations
            assert pair.calls.events == calls
        finally:
            pair.close()
