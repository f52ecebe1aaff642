"""
Measure the codecs of batches on the embedded log, each beside none: bytes in the log, rates, and the server's processor time.

Called by `benchmarks.log`. Records are JSON events that share their names and differ in their numbers, as logs and orders do:
equal records would compress to nothing, and random ones not at all.
"""

import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import grpc

import rota
from benchmarks.peers import page, servers
from benchmarks.peers.voice import TOPIC
from rota.producer.options import Compression
from rota_proto.log.columns import CODEC
from rota_proto.log.compression import CODECS, NAMES, codec_of
from rota_proto.log.v1 import log_pb2 as pb
from rota_proto.log.v1.log_pb2_grpc import LogStub

MANY = 5_000
STATES = ("received", "paid", "packed", "shipped", "delivered", "returned")
MB = 1_000_000


class Measured(NamedTuple):
    """One codec in one round."""

    stored_bytes: int
    # Records per second.
    sent: float
    fetched: float
    # Processor time of the server for both.
    server_s: float


def events(count: int) -> list[bytes]:
    """Return different events of about 140 bytes; the same ones in each run."""
    chance = random.Random(0)
    return [
        json.dumps(
            {
                "order": f"{chance.getrandbits(64):016x}",
                "customer": chance.randrange(100_000),
                "state": chance.choice(STATES),
                "amount": chance.randrange(100_000) / 100,
                "currency": "EUR",
                "at": f"2026-11-27T08:{number // 60_000 % 60:02}:{number // 1_000 % 60:02}.{number % 1_000:03}Z",
            }
        ).encode()
        for number in range(count)
    ]


def measure(compression: Compression, values: Sequence[bytes]) -> Measured:
    """Send the values with one codec to a new server, and fetch them."""
    with servers.rota(partitions=1) as server:
        address = f"rota://{server.address}"
        before_s = server.processor_s()
        sent_s = timed(lambda: send(address, compression, values))
        fetched_s = timed(lambda: fetch(address, values))
        server_s = server.processor_s() - before_s
        return Measured(
            stored_bytes(server.address, compression), len(values) / sent_s, len(values) / fetched_s, server_s
        )


def timed(act: Callable[[], None]) -> float:
    """Return the seconds of a call."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def send(address: str, compression: Compression, values: Sequence[bytes]) -> None:
    """Send all values in calls of 5,000, each acknowledged once it is written."""
    with rota.Producer(address, acks=1, enable_idempotence=False, compression_type=compression) as producer:
        for first in range(0, len(values), MANY):
            producer.send_many(TOPIC, values[first : first + MANY])
        producer.flush()


def fetch(address: str, values: Sequence[bytes]) -> None:
    """Fetch all values, and compare the last one."""
    found: Sequence[bytes | None] = ()
    with rota.LogReader(address) as reader:
        for records in reader.read(TOPIC, 0):
            found = records.values
        assert records.next_offset == len(values)
    assert found[-1] == values[-1]


def stored_bytes(address: str, compression: Compression) -> int:
    """Return the bytes of all payloads as the log stores them, after checking their codec."""
    size = offset = 0
    with grpc.insecure_channel(address) as channel:
        while True:
            asked = pb.FetchRequest.Partition(topic=TOPIC, index=0, offset=offset)
            answer = LogStub(channel).Fetch(pb.FetchRequest(partitions=[asked], accepted_codecs=CODECS))
            (part,) = answer.partitions
            assert {batch.codec for batch in part.batches} <= {codec_of(compression)}
            size += sum(len(batch.payload) for batch in part.batches)
            if part.next_offset == offset:
                return size
            offset = part.next_offset


def lines(records: int, rounds: int) -> list[page.Line]:
    """Measure each codec beside none, in the same rounds."""
    values = events(records)
    found: list[page.Line] = []
    results: list[dict[str, Measured]] = [
        {name: measure(name, values) for name in ("none", *(compressions()))} for _ in range(rounds)
    ]
    for name in compressions():
        pairs = [(each[name], each["none"]) for each in results]
        found += [
            line(f"{name}: bytes in the log", pairs, lambda each: each.stored_bytes / MB, "{:,.1f} MB"),
            line(f"{name}: sent 5,000 at a time", pairs, lambda each: each.sent, "{:,.0f}/s"),
            line(f"{name}: fetched", pairs, lambda each: each.fetched, "{:,.0f}/s"),
            line(f"{name}: server's work", pairs, lambda each: each.server_s, "{:.2f} s"),
        ]
    return found


def compressions() -> list[Compression]:
    """Return the names of all codecs but none."""
    return [NAMES[codec] for codec in NAMES if codec != CODEC]  # type: ignore[misc]  # Kafka's names


def line(
    what: str, pairs: Sequence[tuple[Measured, Measured]], figure: Callable[[Measured], float], text: str
) -> page.Line:
    """Return the line of one figure, as medians and as the median of its ratio."""
    ours, theirs = ([figure(each) for each in side] for side in zip(*pairs, strict=True))
    ratio = page.median_ratio(zip(ours, theirs, strict=True))
    beside = f"none {text.format(statistics.median(theirs))}"
    return page.Line(what, text.format(statistics.median(ours)), beside, ratio)
