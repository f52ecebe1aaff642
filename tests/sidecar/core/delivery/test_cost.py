"""Costs of records: with partitions in order, a batch costs the same however many records it has and partitions are owned."""

import gc
import sys
from types import FrameType
from typing import Self

from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.ledger.rules import Verdict
from tests.sidecar.core.delivery.driven import Driven, batch, one


class Calls:
    """Counts the functions that are called within it; a clock would measure the machine."""

    def __init__(self) -> None:
        self.number = 0

    def _count(self, _frame: FrameType, event: str, _argument: object) -> None:
        self.number += event == "call"

    def __enter__(self) -> Self:
        # A collection would call what others have left to finalize.
        gc.disable()
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        gc.enable()


def calls_for_a_batch(records: int, partitions: int) -> int:
    """To read it, hand it out, and take the verdict and new credit."""
    driven = Driven().begin(*range(partitions), credit=records)
    delivery_epoch = driven.fetch_of().delivery_epoch
    delivery, now_ms = driven.delivery, driven.now_ms
    with Calls() as calls:
        delivery.step(on.Read(delivery_epoch, [batch(0, records)], records, on.Bounds(0, records)), now_ms)
        delivery.step(on.Judged([on.Judgement(delivery_epoch, one(), 0, records - 1, Verdict.ACK)]), now_ms)
        delivery.step(on.Credit(records), now_ms)
        assert delivery.alarm is not None
    assert delivery.positions[one()] == records
    return calls.number


def test_a_batch_costs_the_same_whatever_it_holds() -> None:
    assert calls_for_a_batch(900, 1) <= calls_for_a_batch(9, 1)


def test_a_batch_costs_the_same_however_many_partitions_are_held() -> None:
    assert calls_for_a_batch(9, 200) <= calls_for_a_batch(9, 2)


def test_a_batch_costs_little() -> None:
    assert calls_for_a_batch(900, 1) < 500


def calls_for_a_verdict(partitions: int) -> float:
    """While records of all partitions wait, of which some are in flight."""
    driven = Driven(concurrency=8).begin(*range(partitions), credit=10_000)
    for number in range(partitions):
        driven.read(2, number)
    in_flight = [(each.delivery_epoch, each.partition) for each in driven.all(do.Deliver)]
    assert len(in_flight) == 8
    with Calls() as calls:
        for delivery_epoch, partition in in_flight:
            driven.step(on.Judged([on.Judgement(delivery_epoch, partition, 0, 1, Verdict.ACK)]))
    assert len(driven.all(do.Deliver)) == 16
    return calls.number / len(in_flight)


def test_a_verdict_costs_the_same_however_many_partitions_wait_for_a_lane() -> None:
    assert calls_for_a_verdict(200) <= calls_for_a_verdict(20)


def calls_for_lone_records(records: int) -> int:
    """Each is read, dispatched and judged by itself, and then the next one comes."""
    driven = Driven().begin(0, credit=records)
    delivery, now_ms = driven.delivery, driven.now_ms
    delivery_epoch = driven.fetch_of().delivery_epoch
    with Calls() as calls:
        for offset in range(records):
            bounds = on.Bounds(0, offset + 1)
            delivery.step(on.Read(delivery_epoch, [batch(offset, 1)], offset + 1, bounds), now_ms)
            judgement = on.Judgement(delivery_epoch, one(), offset, offset, Verdict.ACK)
            delivery.step(on.Judged([judgement]), now_ms)
            delivery.step(on.Credit(1), now_ms)
            assert delivery.alarm is not None
    assert delivery.positions[one()] == records
    return calls.number


def test_a_record_that_comes_alone_costs_little_and_always_the_same() -> None:
    few, many = calls_for_lone_records(100), calls_for_lone_records(1_000)
    assert many / 1_000 <= 1.01 * few / 100
    assert few / 100 < 380
