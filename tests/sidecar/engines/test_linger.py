"""Records that wait for others come together, and none comes that is not wanted any more."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence

import pytest
from typing_extensions import override

from rota_sidecar.core.delivery.events import Bounds, FetchError, Read, ReadFailed
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.linger import ENOUGH_BYTES, Lingering
from rota_sidecar.engines.records import At, Hear, Records, Wanted

FOR_EVER_S = 3_600
LINGER_S = 0.001
WITHIN_S = 10
BOUNDS = Bounds(0, 100)


class Engine(Records):
    """Reads what the test says."""

    def __init__(self, hear: Hear) -> None:
        self.hear = hear
        self.asked: list[object] = []

    @override
    def fetch(self, wanted: Wanted) -> None:
        self.asked.append(wanted)

    @override
    def stop(self, delivery_epoch: int) -> None:
        self.asked.append(delivery_epoch)

    @override
    async def bounds(self, partitions: Collection[Partition], within_s: float) -> Mapping[Partition, Bounds]:
        return dict.fromkeys(partitions, BOUNDS)

    @override
    async def at_times(self, times: Mapping[Partition, int], within_s: float) -> Mapping[Partition, At]:
        return {partition: At(7, time_ms) for partition, time_ms in times.items()}

    @override
    async def close(self) -> None:
        self.asked.append("close")


class Desk:
    """Who wants records, and the engine behind those that linger."""

    def __init__(self, linger_s: float) -> None:
        self.heard: list[Read | ReadFailed] = []
        self.came = asyncio.Event()
        self.lingering = Lingering(self._make, self._hear, linger_s)

    def _make(self, hear: Hear) -> Engine:
        self.engine = Engine(hear)
        return self.engine

    def _hear(self, heard: Read | ReadFailed) -> None:
        self.heard.append(heard)
        self.came.set()


def read(delivery_epoch: int, size: int = 100) -> Read:
    return Read(delivery_epoch, [Batch(0, 1, size, b"")], 1, BOUNDS)


def wanted(delivery_epoch: int) -> Wanted:
    return Wanted(delivery_epoch, Partition("events", delivery_epoch), 0, 1_000)


def with_desk(linger_s: float, story: Callable[[Desk], Coroutine[None, None, None]]) -> Sequence[int]:
    """Which ledgers were heard of in the story."""

    async def tell() -> Sequence[int]:
        desk = Desk(linger_s)
        await story(desk)
        return [heard.delivery_epoch for heard in desk.heard]

    return asyncio.run(tell())


def test_records_that_come_in_time_are_told_together() -> None:
    async def story(desk: Desk) -> None:
        desk.engine.hear(read(1))
        desk.engine.hear(read(2))
        assert not desk.heard
        await asyncio.wait_for(desk.came.wait(), WITHIN_S)

    assert with_desk(LINGER_S, story) == [1, 2]


def test_those_after_them_wait_anew() -> None:
    async def story(desk: Desk) -> None:
        for delivery_epoch in (1, 2):
            desk.engine.hear(read(delivery_epoch))
            await asyncio.wait_for(desk.came.wait(), WITHIN_S)
            desk.came.clear()

    assert with_desk(LINGER_S, story) == [1, 2]


def test_many_bytes_do_not_wait() -> None:
    async def story(desk: Desk) -> None:
        desk.engine.hear(read(1, ENOUGH_BYTES - 1))
        assert not desk.heard
        desk.engine.hear(read(2, 1))

    assert with_desk(FOR_EVER_S, story) == [1, 2]


def test_a_failure_does_not_wait() -> None:
    failed = ReadFailed(1, FetchError.UNREACHABLE, "nobody answers")

    async def story(desk: Desk) -> None:
        desk.engine.hear(failed)

    assert with_desk(FOR_EVER_S, story) == [1]


@pytest.mark.parametrize("end", ["stop", "fetch"])
def test_what_is_not_wanted_any_more_never_comes(end: str) -> None:
    async def story(desk: Desk) -> None:
        desk.engine.hear(read(1, ENOUGH_BYTES - 1))
        if end == "stop":
            desk.lingering.stop(1)
        else:
            desk.lingering.fetch(wanted(1))
        assert desk.engine.asked == [1 if end == "stop" else wanted(1)]
        # Nor does it count.
        desk.engine.hear(read(2, ENOUGH_BYTES - 1))
        assert not desk.heard
        desk.engine.hear(read(3, 1))

    assert with_desk(FOR_EVER_S, story) == [2, 3]


def test_nothing_is_told_after_the_end() -> None:
    async def story(desk: Desk) -> None:
        desk.engine.hear(read(1))
        await desk.lingering.close()
        assert desk.engine.asked == ["close"]
        # What was planned earlier happens before this.
        passed = asyncio.Event()
        asyncio.get_running_loop().call_later(LINGER_S, passed.set)
        await passed.wait()

    assert with_desk(LINGER_S, story) == []


def test_questions_go_to_the_engine() -> None:
    async def story(desk: Desk) -> None:
        partition = Partition("events", 0)
        assert await desk.lingering.bounds([partition], 1) == {partition: BOUNDS}
        assert await desk.lingering.at_times({partition: 5}, 1) == {partition: At(7, 5)}

    assert with_desk(FOR_EVER_S, story) == []
