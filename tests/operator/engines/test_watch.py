"""The watch of a group: commits are read before ends, a timestamp is read once, and what does not answer becomes unknown."""

import asyncio
from collections.abc import Collection, Mapping

import pytest
from typing_extensions import override

from rota_operator.engines import watch
from rota_operator.engines.port import Groups, Range, Records, Unavailable
from rota_operator.engines.watch import OffsetWatch, Subscription, repeat
from rota_operator.overview.assignment import Partition
from rota_operator.overview.offsets import PartitionOffsets

A, B, OLD = Partition("orders", 0), Partition("orders", 1), Partition("old", 0)


class Engine(Groups, Records):
    """Both halves, and what was asked of them, in order."""

    def __init__(self) -> None:
        self.offsets = {A: 4, B: 10}
        self.log = {A: Range(0, 10), B: Range(0, 10), OLD: Range(5, 5)}
        # By partition and offset; None: control markers alone.
        self.times: dict[tuple[Partition, int], int | None] = {(A, 4): 1_000}
        self.asked: list[str] = []
        self.read: list[Mapping[Partition, int]] = []

    @override
    async def committed(
        self, group_id: str, partitions: Collection[Partition], *, only_these: bool = False
    ) -> Mapping[Partition, int]:
        self.asked.append("committed")
        return self.offsets

    @override
    async def partitions(self, topics: Collection[str], pattern: str = "") -> Collection[Partition]:
        return [each for each in self.log if each.topic in topics]

    @override
    async def ranges(self, partitions: Collection[Partition]) -> Mapping[Partition, Range]:
        self.asked.append("ranges")
        return {each: self.log[each] for each in partitions}

    @override
    async def timestamps(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, int | None]:
        self.read.append(dict(offsets))
        return {each: self.times[each, offset] for each, offset in offsets.items()}


def watching(engine: Engine) -> OffsetWatch:
    return OffsetWatch("shop", Subscription(["orders"]), engine, engine, frozenset)


def test_commits_are_read_before_ends_so_that_new_records_count_as_lag() -> None:
    engine = Engine()
    found = asyncio.run(watching(engine).poll())
    assert found == {A: PartitionOffsets(4, 0, 10, 1_000), B: PartitionOffsets(10, 0, 10)}
    assert engine.asked == ["committed", "ranges"]
    assert engine.read == [{A: 4}]


def test_a_timestamp_is_read_again_only_when_another_record_is_the_first_uncommitted_one() -> None:
    async def story(engine: Engine) -> None:
        looking = watching(engine)
        for _ in range(2):
            assert (await looking.poll())[A].first_uncommitted_ms == 1_000
        engine.offsets[A], engine.times[A, 7] = 7, 2_000
        assert (await looking.poll())[A].first_uncommitted_ms == 2_000

    engine = Engine()
    asyncio.run(story(engine))
    assert engine.read == [{A: 4}, {}, {A: 7}]


def test_the_first_uncommitted_record_lies_behind_what_retention_has_deleted() -> None:
    engine = Engine()
    engine.log[A], engine.times[A, 6] = Range(6, 10), 3_000
    assert asyncio.run(watching(engine).poll())[A] == PartitionOffsets(4, 6, 10, 3_000)


def test_control_markers_are_no_uncommitted_records() -> None:
    engine = Engine()
    engine.times[A, 4] = None
    found = asyncio.run(watching(engine).poll())[A]
    assert (found.lag_records, found.lag_seconds(9_000)) == (6, 0.0)


def test_topics_that_were_committed_once_are_measured_too_and_deleted_ones_are_forgotten() -> None:
    engine = Engine()
    gone = Partition("gone", 0)
    engine.offsets |= {OLD: 5, gone: 3}
    found = asyncio.run(watching(engine).poll())
    assert found[OLD] == PartitionOffsets(5, 5, 5)
    assert gone not in found


def test_what_does_not_answer_is_unknown_once_its_last_answer_is_too_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "POLL_INTERVAL_S", 0.001)
    monkeypatch.setattr(watch, "OFFSETS_VALID_MS", 20)
    said: list[str] = []

    async def poll() -> None:
        raise Unavailable("the brokers are unreachable")

    async def story() -> None:
        watching = asyncio.Event()

        def unknown(reason: str) -> None:
            said.append(reason)
            watching.set()

        repeating = asyncio.ensure_future(repeat(poll, unknown))
        await watching.wait()
        # It is said once, however often it fails.
        for _ in range(20):
            await asyncio.sleep(0.001)
        repeating.cancel()

    asyncio.run(story())
    assert said == ["the brokers are unreachable"]
