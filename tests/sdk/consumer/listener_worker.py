"""
One consumer with a listener and a sidecar of its own, as a process: it tells what its listener is told, and when that
returned.

Whenever partitions are assigned to it, it rewinds each to another place, and tells the first record that comes then. Run as
`python -m tests.sdk.consumer.listener_worker`; SIGTERM ends it in good order.
"""

import argparse
import json
import signal
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TextIO

from typing_extensions import override

import rota
from rota.consumer.listeners import Partitions, Polled
from tests.support.processes import steady_ms

POLL_MS = 50
# What an application does in a listener takes a while.
WORK_S = 0.1
# Where records are, in each partition.
RECORDS_PER_PARTITION = 40


class EmittingListener(rota.RebalanceListener):
    """Of each call a line, when it returns."""

    def __init__(self, consumer: rota.Consumer, out: TextIO) -> None:
        # Where each partition is rewound to, until something comes of it.
        self.sought: dict[int, int] = {}
        self._consumer = consumer
        self._out = out
        self._turns = count(1)
        self._never = threading.Event()

    def emit(self, event: str, **fields: object) -> None:
        """One line."""
        self._out.write(json.dumps({"event": event, **fields}) + "\n")
        self._out.flush()

    @override
    def on_partitions_assigned(self, partitions: Partitions) -> None:
        begun_ms = steady_ms()
        turn = next(self._turns)
        for partition in partitions:
            sought = (7 * turn + partition.partition) % RECORDS_PER_PARTITION
            self._consumer.seek(partition, sought)
            self.sought[partition.partition] = sought
        self._called("assigned", partitions, begun_ms)

    @override
    def on_partitions_revoked(self, partitions: Partitions) -> None:
        begun_ms = steady_ms()
        self._consumer.commit()
        self._never.wait(WORK_S)
        self._called("revoked", partitions, begun_ms)

    @override
    def on_partitions_lost(self, partitions: Partitions) -> None:
        self._called("lost", partitions, steady_ms())

    def _called(self, name: str, partitions: Partitions, begun_ms: int) -> None:
        numbers = [partition.partition for partition in partitions]
        if name != "assigned":
            for number in numbers:
                self.sought.pop(number, None)
        ended_ms = steady_ms()
        membership = self._consumer.group_metadata()
        self.emit(
            name,
            partitions=numbers,
            member=membership.member_id,
            generation=membership.generation_id,
            begun_ms=begun_ms,
            ended_ms=ended_ms,
        )


def firsts(polled: Polled, sought: dict[int, int]) -> Iterator[dict[str, int]]:
    """The first records of those that were rewound, each told once."""
    for partition, records in polled.items():
        wanted = sought.pop(partition.partition, None)
        if wanted is not None:
            yield {"partition": partition.partition, "sought": wanted, "offset": records[0].offset}


def main() -> None:
    """Until SIGTERM."""
    parser = argparse.ArgumentParser()
    for flag in ("servers", "topic", "group", "strategy"):
        parser.add_argument(f"--{flag}", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--session-ms", type=int, required=True)
    parser.add_argument("--heartbeat-ms", type=int, required=True)
    options = parser.parse_args()
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    settings = {
        "group_id": options.group,
        "bootstrap_servers": options.servers,
        "enable_auto_commit": False,
        "session_timeout_ms": options.session_ms,
        "heartbeat_interval_ms": options.heartbeat_ms,
        "partition_assignment_strategy": options.strategy,
    }
    with options.out.open("w") as out, rota.Consumer(**settings) as consumer:
        listener = EmittingListener(consumer, out)
        consumer.subscribe(options.topic, listener=listener)
        while not ends.is_set():
            polled = consumer.poll(timeout_ms=POLL_MS)
            for first in firsts(polled, listener.sought):
                listener.emit("polled", **first)
        consumer.close()
        listener.emit("closed")


if __name__ == "__main__":
    main()
