"""
Measure the processor time of sending a record with the SDK, without a server, beside librdkafka.

The claim: an application that sends record after record spends no more than twice the time in `send` that it spends in confluent-kafka's
`produce`. Rota's producer talks to a connection that answers at once, librdkafka to the broker that it simulates in its own
threads (`test.mock.num.brokers`). Both alternate in this process, so that a busy machine slows both; all figures are processor time.
`python -m benchmarks.log` measures the rates beside real servers.
"""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import NamedTuple
from unittest.mock import patch

from confluent_kafka import Producer as KafkaProducer
from typing_extensions import override

import rota
from benchmarks.peers import page
from rota.connection import Call, Connection, Credentials, Request, Result
from rota.producer import rota_engine
from rota_proto.log.v1 import log_pb2 as pb

TOPIC = "bench"
VALUE = b"v" * 100
KEYS = [b"key-%d" % number for number in range(1_000)]
RECORDS, RECORDS_QUICK = 100_000, 10_000
ROUNDS, ROUNDS_QUICK = 9, 3
MANY = 5_000
# As often as an application polls for the outcomes of librdkafka.
POLL_EVERY = 1_000
GOAL = page.at_most(2)
SETTINGS = {
    "linger.ms": 5,
    "queue.buffering.max.messages": 0,
    "queue.buffering.max.kbytes": 1 << 20,
    "acks": 1,
}

Send = Callable[[int], None]


class Answering(Connection):
    """A connection to a log with one partition, which encodes requests and answers at once."""

    def __init__(self, address: str, credentials: Credentials | None = None, client_id: str = "") -> None:
        self.address = address
        self.log = SimpleNamespace(Produce=None, DescribeTopics=None, InitProducer=None)  # type: ignore[assignment]
        self._end = 0

    @override
    async def ask(self, call: Call[Request, Result], request: Request, *, within_s: float) -> Result:
        return self._answer(request)  # type: ignore[return-value]

    def _answer(self, request: object) -> object:
        if isinstance(request, pb.DescribeTopicsRequest):
            return pb.DescribeTopicsResponse(
                topics=[pb.DescribeTopicsResponse.Topic(name=TOPIC, partitions=1)]
            )
        assert isinstance(request, pb.ProduceRequest)
        request.SerializeToString()
        (partition,) = request.partitions
        offset, self._end = self._end, self._end + sum(batch.count for batch in partition.batches)
        return pb.ProduceResponse(
            partitions=[pb.ProduceResponse.Partition(topic=TOPIC, index=0, base_offset=offset)]
        )

    @override
    async def close(self) -> None:
        pass


class Cost(NamedTuple):
    """Processor time of a record in nanoseconds: of the thread that sends, and of the whole process until all are delivered."""

    sender_ns: float
    process_ns: float


def measured(send: Callable[[], object], flush: Callable[[], object], count: int) -> Cost:
    """Measure sending all records."""
    gc.collect()
    sender, process = time.thread_time_ns(), time.process_time_ns()
    send()
    sender = time.thread_time_ns() - sender
    flush()
    return Cost(sender / count, (time.process_time_ns() - process) / count)


def on_rota(load: str, count: int) -> Cost:
    """Measure Rota's producer."""
    with rota.Producer("rota://none:1", acks=1, enable_idempotence=False) as producer:
        producer.send(TOPIC, VALUE).result()
        send = producer.send

        def one_by_one() -> None:
            for _ in range(count):
                send(TOPIC, VALUE)

        def with_keys() -> None:
            for number in range(count):
                send(TOPIC, VALUE, KEYS[number % len(KEYS)])

        def many() -> None:
            for _ in range(count // MANY):
                producer.send_many(TOPIC, [VALUE] * MANY)

        loads = {"one by one": one_by_one, "with keys": with_keys, f"{MANY:,} at a time": many}
        return measured(loads[load], producer.flush, count)


def on_librdkafka(load: str, count: int) -> Cost:
    """Measure librdkafka's producer, which has no call for many records."""
    producer = KafkaProducer({"test.mock.num.brokers": 1, "log_level": 0, **SETTINGS})
    producer.produce(TOPIC, VALUE)
    producer.flush()
    produce, poll = producer.produce, producer.poll

    def send() -> None:
        for number in range(count):
            produce(TOPIC, VALUE, KEYS[number % len(KEYS)] if load == "with keys" else None)
            if not number % POLL_EVERY:
                poll(0)

    return measured(send, producer.flush, count)


def lines(load: str, rounds: Sequence[tuple[Cost, Cost]]) -> list[page.Line]:
    """Return the lines of one load."""
    found = []
    for which, what in enumerate(("thread that sends", "process")):
        ours, theirs = (statistics.median(pair[side][which] for pair in rounds) for side in (0, 1))
        ratio = page.median_ratio((pair[0][which], pair[1][which]) for pair in rounds)
        goal = page.judged(GOAL, ratio) if which == 0 else ""
        found.append(
            page.Line(f"{load}: {what}", f"{ours:,.0f} ns", f"librdkafka {theirs:,.0f} ns", ratio, goal)
        )
    return found


def main() -> None:
    """Run the benchmark and print its table."""
    loads = ("one by one", "with keys", f"{MANY:,} at a time")
    result = page.Page(
        "sending",
        f"records of {len(VALUE)} bytes, one partition, no server; processor time of a record, medians of {ROUNDS} rounds",
        quick="fewer records and rounds",
    )
    count, rounds = (RECORDS_QUICK, ROUNDS_QUICK) if result.quick else (RECORDS, ROUNDS)
    found: list[page.Line] = []
    with patch.object(rota_engine, "Connection", Answering):
        for load in loads:
            found += lines(load, [(on_rota(load, count), on_librdkafka(load, count)) for _ in range(rounds)])
    result.show(found)


if __name__ == "__main__":
    main()
