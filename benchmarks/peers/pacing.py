"""
Records that arrive at a pace: a process that sends them, and how old they are on arrival.

Used by the benchmark of delivery. Each record has the time at which it was sent, by the clock that both processes share.
"""

import multiprocessing
import signal
import statistics
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import Producer as KafkaProducer

import rota
from benchmarks.peers.voice import TOPIC

SIZE = 100
PARTITIONS = 6
PACED_S = 5
# Of the warm-up, because the first commit of a group is slow on the broker.
WARM_UP_S = 4
STAMP = struct.Struct("<d")
ANY_PARTITION = -1
# The default of Rota's producer and of librdkafka.
USUAL_LINGER_MS = 5
Send = Callable[[bytes, int | None], None]


class Sending(NamedTuple):
    """Pace and settings of a producer."""

    kind: str
    # Records wait so long for others.
    linger_ms: int
    # True: round-robin over the partitions; False: the producer's default partitioner.
    in_turn: bool
    # Records a second.
    rate: int = 1_000

    @property
    def what(self) -> str:
        """The name in the table."""
        return f"{self.rate:,}/s {self.kind}"

    @property
    def records(self) -> int:
        """Number of records that are measured."""
        return self.rate * PACED_S

    @property
    def warm_up(self) -> int:
        """Number of records that are sent before those that are measured."""
        return self.rate * WARM_UP_S


class Paced(NamedTuple):
    """Ages of records on arrival in milliseconds, and the CPU and memory of the process beside the application."""

    ages_ms: list[float]
    cores: float = 0
    mebibytes: float = 0

    def within_ms(self, percent: int) -> float:
        """Return the age in ms that this percentage of the records does not exceed."""
        return statistics.quantiles(self.ages_ms, n=100)[percent - 1]


def send_paced(address: str, how: Sending) -> None:
    """Send records at the pace, each with its send time as value."""
    with sender_to(address, how) as send:
        began = time.perf_counter()
        for number in range(how.records + how.warm_up):
            time.sleep(max(began + number / how.rate - time.perf_counter(), 0))
            value = STAMP.pack(time.time()) + b"v" * (SIZE - STAMP.size)
            send(value, number % PARTITIONS if how.in_turn else None)


@contextmanager
def sender_to(address: str, how: Sending) -> Iterator[Send]:
    """Yield what sends a value to a partition, or to one of the producer's choice; the block ends when all are sent."""
    if address.startswith("rota://"):
        with rota.Producer(address, acks=1, enable_idempotence=False, linger_ms=how.linger_ms) as producer:

            def send(value: bytes, partition: int | None) -> None:
                producer.send(TOPIC, value, partition=partition)

            yield send
            producer.flush()
        return
    kafka = KafkaProducer({"bootstrap.servers": address, "acks": 1, "linger.ms": how.linger_ms})

    def produce(value: bytes, partition: int | None) -> None:
        kafka.produce(TOPIC, value, partition=ANY_PARTITION if partition is None else partition)
        kafka.poll(0)

    yield produce
    kafka.flush()


@contextmanager
def sending(address: str, how: Sending) -> Iterator[None]:
    """Send at the pace in a separate process, so that the sender does not slow the application down."""
    sender = multiprocessing.get_context("spawn").Process(target=send_paced, args=(address, how))
    sender.start()
    yield
    sender.join()


def age_ms(value: bytes | None) -> float:
    """Return the age of a record on arrival in milliseconds."""
    assert value is not None
    sent_s: float = STAMP.unpack_from(value)[0]
    return (time.time() - sent_s) * 1000


def ages(poll: Callable[[], Iterable[bytes | None]], address: str, how: Sending) -> list[float]:
    """Return the ages of records on arrival in milliseconds, without those of the warm-up."""
    found: list[float] = []
    with sending(address, how):
        while len(found) < how.records + how.warm_up:
            found += map(age_ms, poll())
    return found[how.warm_up :]


def handled_ages(sidecar: str, address: str, how: Sending) -> list[float]:
    """Return the same of a handler beside the sidecar at this address."""
    found: list[float] = []

    @rota.handler(TOPIC)
    async def take(record: rota.Record[bytes, bytes]) -> None:
        found.append(age_ms(record.value))
        if len(found) == how.records + how.warm_up:
            signal.raise_signal(signal.SIGTERM)

    with sending(address, how):
        rota.run(take, sidecar=sidecar)
    return found[how.warm_up :]
