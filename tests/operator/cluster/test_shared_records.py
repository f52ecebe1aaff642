"""Lookups of several groups in one log: sent together, each after it was asked for, and each with its own answer."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

import pytest
from typing_extensions import override

from rota_operator.cluster.shared_records import SharedRecords
from rota_operator.engines.port import Range, Records, Unavailable
from rota_operator.overview.assignment import Partition

WITHIN_S = 60
ORDERS, PAYMENTS = Partition("orders", 0), Partition("payments", 0)


class Log(Records):
    """A log with one partition in each topic but "missing"; keeps what was asked for, and fails on demand."""

    def __init__(self) -> None:
        self.asked: list[set[object]] = []
        self.end = 5
        self.fails = False

    @override
    async def partitions(self, topics: Collection[str], pattern: str = "") -> Collection[Partition]:
        self._note({*topics, pattern} - {""})
        return [Partition(each, 0) for each in sorted(topics) if each != "missing"]

    @override
    async def ranges(self, partitions: Collection[Partition]) -> Mapping[Partition, Range]:
        self._note(partitions)
        return {each: Range(0, self.end) for each in partitions}

    @override
    async def timestamps(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, int | None]:
        self._note(offsets)
        return dict(offsets)

    def _note(self, asked: Collection[object]) -> None:
        self.asked.append(set(asked))
        if self.fails:
            raise Unavailable("no answer")


def play(story: Callable[[Log, SharedRecords], Awaitable[None]]) -> None:
    async def bounded() -> None:
        log = Log()
        async with asyncio.timeout(WITHIN_S):
            await story(log, SharedRecords(log, window_s=0.0))

    asyncio.run(bounded())


def test_lookups_side_by_side_are_one_request_and_each_gets_its_own_answer() -> None:
    async def story(log: Log, records: SharedRecords) -> None:
        found = await asyncio.gather(
            records.partitions(["orders"]), records.partitions(["orders", "payments"]), records.partitions(["missing"])
        )  # fmt: skip
        assert [list(each) for each in found] == [[ORDERS], [ORDERS, PAYMENTS], []]
        ranges = await asyncio.gather(records.ranges([ORDERS]), records.ranges([PAYMENTS]))
        assert [set(each) for each in ranges] == [{ORDERS}, {PAYMENTS}]
        assert log.asked == [{"orders", "payments", "missing"}, {ORDERS, PAYMENTS}]

    play(story)


def test_a_lookup_while_a_request_is_on_its_way_is_sent_after_it() -> None:
    async def story(log: Log, records: SharedRecords) -> None:
        first = await records.ranges([ORDERS])
        log.end = 6
        second = await records.ranges([ORDERS])
        assert (first[ORDERS].end, second[ORDERS].end) == (5, 6)

    play(story)


def test_nothing_is_not_asked_for_and_a_pattern_is_asked_for_alone() -> None:
    async def story(log: Log, records: SharedRecords) -> None:
        assert (await records.partitions([]), await records.ranges([]), await records.timestamps({})) == (
            (),
            {},
            {},
        )
        assert log.asked == []
        await records.partitions(["orders"], "or.*")
        assert log.asked == [{"orders", "or.*"}]

    play(story)


def test_a_failure_is_the_failure_of_all_who_wait_and_of_no_later_lookup() -> None:
    async def story(log: Log, records: SharedRecords) -> None:
        log.fails = True
        found = await asyncio.gather(
            records.ranges([ORDERS]), records.ranges([PAYMENTS]), return_exceptions=True
        )
        assert [type(each) for each in found] == [Unavailable, Unavailable]
        log.fails = False
        assert set(await records.ranges([ORDERS])) == {ORDERS}

    play(story)


def test_a_lookup_that_is_cancelled_takes_the_answer_from_no_other() -> None:
    async def story(log: Log, records: SharedRecords) -> None:
        leaving = asyncio.create_task(records.ranges([ORDERS]))
        staying = asyncio.create_task(records.ranges([PAYMENTS]))
        await asyncio.sleep(0)
        leaving.cancel()
        assert set(await staying) == {PAYMENTS}
        with pytest.raises(asyncio.CancelledError):
            await leaving

    play(story)
