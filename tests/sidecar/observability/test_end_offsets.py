"""Arrival rates of partitions: averages over seconds, that are known for a while after the partition has gone."""

import asyncio
from collections.abc import Collection, Mapping
from typing import cast

import pytest

from rota_sidecar.core.delivery.events import Bounds
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.records import Records
from rota_sidecar.observability.end_offsets import KNOWN_S, LOOK_S, WEIGHT, EndOffsets, updated
from tests.coordinator.virtual import play, turn

HOT, COLD = Partition("orders", 0), Partition("orders", 1)
RATES = {HOT: 20.0, COLD: 2.0}


class Growing:
    """Partitions that grow by RATES."""

    async def bounds(self, partitions: Collection[Partition], _within_s: float) -> Mapping[Partition, Bounds]:
        now_s = asyncio.get_running_loop().time()
        return {each: Bounds(0, int(RATES[each] * now_s)) for each in partitions}


def test_a_rate_takes_two_looks_and_forgets_slowly() -> None:
    first = updated(None, Bounds(0, 100), 10)
    assert first.rate is None
    second = updated(first, Bounds(0, 150), 15)
    assert second.rate == 10
    third = updated(second, Bounds(0, 150), 20)
    assert third.rate == pytest.approx(10 * (1 - WEIGHT))
    assert updated(third, Bounds(0, 3), 25).rate is None, "another topic of that name"


def test_looks_that_follow_each_other_quickly_change_no_rate() -> None:
    first = updated(None, Bounds(0, 100), 10)
    early = updated(first, Bounds(0, 101), 10.01)
    assert (early.bounds.end, early.rate) == (101, None), "a record within 10 ms is not 100 per second"
    second = updated(early, Bounds(0, 110), 15)
    assert second.rate == 2, "all records since the first look"
    hasty = updated(second, Bounds(0, 111), 15.01)
    assert (hasty.bounds.end, hasty.rate) == (111, 2)
    assert updated(hasty, Bounds(0, 120), 20).rate == pytest.approx(2)


def test_the_rate_of_a_released_partition_is_reported_for_a_while() -> None:
    reported: list[Mapping[Partition, float]] = []
    held = {HOT, COLD}

    async def body() -> None:
        offsets = EndOffsets(cast("Records", Growing()), lambda: frozenset(held), reported.append)
        looking = asyncio.ensure_future(offsets.run())
        await asyncio.sleep(LOOK_S + 1)
        assert reported[-1] == RATES
        held.remove(COLD)
        offsets.look()
        await turn()
        assert reported[-1] == RATES, "the next owner is chosen by both"
        await asyncio.sleep(KNOWN_S + LOOK_S)
        assert reported[-1] == {HOT: pytest.approx(RATES[HOT])}
        assert offsets.seen(COLD) is None
        looking.cancel()

    play(body)
