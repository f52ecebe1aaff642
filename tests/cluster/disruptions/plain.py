"""
The peer of the disrupted applications: a consumer of confluent-kafka that does the same work, without Rota.

Run in pods, by its text: offsets of processed records are committed in an interval and by `close()` on SIGTERM. By partition, each of them
has a thread, as a handler of Rota works on partitions side by side; one by one, the thread that polls does the work.
"""

import json
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from confluent_kafka import Consumer, Message, TopicPartition

FOLDER = Path("/events")
# Of librdkafka's group metadata: the generation follows its magic.
MAGIC = b"CGMDv2:"
ONE_BY_ONE = "one-by-one"


def now_ms() -> int:
    """Milliseconds of the machine's steady clock."""
    return time.monotonic_ns() // 1_000_000


class PlainConsumer:
    """The consumer and its workers. Invariant: an offset is stored only after its record is done."""

    def __init__(self, topic: str, work_s: float, ordering: str, config: Mapping[str, object]) -> None:
        self._topic = topic
        self._work_s = work_s
        self._is_one_by_one = ordering == ONE_BY_ONE
        self._file = (FOLDER / f"{os.uname().nodename}.{now_ms()}").open("w", buffering=1)
        self._writing = threading.Lock()
        self._stopping = threading.Event()
        # Records that are done; the thread that polls stores their offsets, as the consumer's only caller.
        self._processed: SimpleQueue[Message] = SimpleQueue()
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._work: dict[int, Future[None]] = {}
        # The last one that was written.
        self._generation = -1
        self._consumer = Consumer(dict(config))

    def run(self) -> None:
        """Consume until SIGTERM, then close."""
        signal.signal(signal.SIGTERM, lambda *_: self._stopping.set())
        self._write("started")
        self._consumer.subscribe(
            [self._topic],
            on_assign=self._note("assigned"),
            on_revoke=self._note("revoking"),
            on_lost=self._note("lost"),
        )
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._begin(message)
            self._store()
            self._note_generation()
        self._finish([*self._work])
        self._write("closing")
        self._consumer.close()
        self._write("ended")

    def _note(self, event: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        def noted(_: Consumer, partitions: list[TopicPartition]) -> None:
            numbers = [each.partition for each in partitions]
            if event != "assigned":
                self._finish(numbers)
            self._write(event, partitions={self._topic: numbers}, generation=self._present_generation())

        return noted

    def _note_generation(self) -> None:
        """Write a new generation, also of a rebalance that moves none of the partitions of this consumer."""
        generation = self._present_generation()
        if generation != self._generation:
            self._generation = generation
            self._write("generation", generation=generation)

    def _present_generation(self) -> int:
        metadata: bytes = self._consumer.consumer_group_metadata()
        generation: int
        (generation,) = struct.unpack_from("=i", metadata, len(MAGIC))
        return generation

    def _finish(self, numbers: Sequence[int]) -> None:
        """Wait for the work on these partitions, and store its offsets."""
        for number in numbers:
            if number in self._work:
                self._work.pop(number).result()
        self._store()

    def _store(self) -> None:
        while not self._processed.empty():
            self._consumer.store_offsets(self._processed.get())

    def _begin(self, message: Message) -> None:
        if self._is_one_by_one:
            self._process(message)
            return
        number = message.partition() or 0
        pool = self._pools.setdefault(number, ThreadPoolExecutor(1))
        self._work[number] = pool.submit(self._process, message)

    def _process(self, message: Message) -> None:
        time.sleep(self._work_s)  # noqa: TID251  the work
        offset = message.offset()
        value = (message.value() or b"").decode()
        self._write("done", topic=self._topic, partition=message.partition(), first=offset, last=offset, verdict="ACK", value=value)  # fmt: skip
        self._processed.put(message)

    def _write(self, event: str, **fields: object) -> None:
        with self._writing:
            self._file.write(json.dumps({"event": event, **fields, "monotonic_ms": now_ms()}) + "\n")


if __name__ == "__main__":
    topic, work_ms, ordering, config = sys.argv[1:]
    PlainConsumer(topic, int(work_ms) / 1000, ordering, json.loads(config)).run()
