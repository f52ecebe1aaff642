"""Costs of records: with partitions in order, a batch costs the same however many records it has and partitions are owned."""

import gc
import sys
from types import FrameType
from typing import Self

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
