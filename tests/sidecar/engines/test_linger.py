"""Records that wait for others come together, and none comes that is not wanted any more."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence

import pytest
from typing_extensions import override

from rota_sidecar.core.delivery.events import Bounds, FetchError, Read, ReadFailed
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.linger import ENOUGH_BYTES, Lingering
from rota_sidecar.engines.records import FetchRequest, OffsetAndTimestamp, OnFetchResult, Records

FOR_EVER_S = 3_600
LINGER_S = 0.001
WITHIN_S = 60
BOUNDS = Bounds(0, 100)


class Engine(Records):
    """Reads what the test says."""

    def __init__(self, on_result: OnFetchResult) -> None:
        self.on_result = on_result
        self.asked: list[object] = []

    @override
    def fetch(self, wanted: FetchRequest) -> None:
        self.asked.append(wanted)

    @override
    def stop(self, delivery_epoch: int) -> None:
        self.asked.append(delivery_epoch)

    @override
    async def bounds(self, partitions: Collection[Partition], within_s: float) -> Mapping[Partition, Bounds]:
        return dict.fromkeys(partitions, BOUNDS)

    @override
    async def at_times(
        self, times: Mapping[Partition, int], within_s: float
    ) -> Mapping[Partition, OffsetAndTimestamp]:
        return {partition: OffsetAndTimestamp(7, time_ms) for partition, time_ms in times.items()}

    @override
    async def close(self) -> None:
        self.asked.append("close")


class Client:
    """A caller of `Lingering`, and the backend behind it."""

    def __init__(self, linger_s: float) -> None:
        self.results: list[Read | ReadFailed] = []
        self.came = asyncio.Event()
        self.lingering = Lingering(self._make, self._on_result, linger_s)

    def _make(self, on_result: OnFetchResult) -> Engine:
        self.engine = Engine(on_result)
        return self.engine

    def _on_result(self, results: Read | ReadFailed) -> None:
        self.results.append(results)
        self.came.set()


def read(delivery_epoch: int, size: int = 100) -> Read:
    return Read(delivery_epoch, [Batch(0, 1, size, b"")], 1, BOUNDS)


def wanted(delivery_epoch: int) -> FetchRequest:
    return FetchRequest(delivery_epoch, Partition("events", delivery_epoch), 0, 1_000)


def with_client(linger_s: float, story: Callable[[Client], Coroutine[None, None, None]]) -> Sequence[int]:
    """Which ledgers were heard of in the story."""

    async def run() -> Sequence[int]:
        client = Client(linger_s)
        await story(client)
        return [results.delivery_epoch for results in client.results]

    return asyncio.run(run())


def test_records_that_arrive_within_the_linger_time_are_delivered_together() -> None:
    async def story(client: Client) -> None:
        client.engine.on_result(read(1))
        client.engine.on_result(read(2))
        assert not client.results
        await asyncio.wait_for(client.came.wait(), WITHIN_S)

    assert with_client(LINGER_S, story) == [1, 2]


def test_those_after_them_wait_anew() -> None:
    async def story(client: Client) -> None:
        for delivery_epoch in (1, 2):
            client.engine.on_result(read(delivery_epoch))
            await asyncio.wait_for(client.came.wait(), WITHIN_S)
            client.came.clear()

    assert with_client(LINGER_S, story) == [1, 2]


def test_many_bytes_do_not_wait() -> None:
    async def story(client: Client) -> None:
        client.engine.on_result(read(1, ENOUGH_BYTES - 1))
        assert not client.results
        client.engine.on_result(read(2, 1))

    assert with_client(FOR_EVER_S, story) == [1, 2]


def test_a_failure_does_not_wait() -> None:
    failed = ReadFailed(1, FetchError.UNREACHABLE, "no answer")

    async def story(client: Client) -> None:
        client.engine.on_result(failed)

    assert with_client(FOR_EVER_S, story) == [1]


@pytest.mark.parametrize("end", ["stop", "fetch"])
def test_what_is_not_wanted_any_more_never_comes(end: str) -> None:
    async def story(client: Client) -> None:
        client.engine.on_result(read(1, ENOUGH_BYTES - 1))
        if end == "stop":
            client.lingering.stop(1)
        else:
            client.lingering.fetch(wanted(1))
        assert client.engine.asked == [1 if end == "stop" else wanted(1)]
        # Nor does it count.
        client.engine.on_result(read(2, ENOUGH_BYTES - 1))
        assert not client.results
        client.engine.on_result(read(3, 1))

    assert with_client(FOR_EVER_S, story) == [2, 3]


def test_nothing_is_delivered_after_close() -> None:
    async def story(client: Client) -> None:
        client.engine.on_result(read(1))
        await client.lingering.close()
        assert client.engine.asked == ["close"]
        # What was planned earlier happens before this.
        passed = asyncio.Event()
        asyncio.get_running_loop().call_later(LINGER_S, passed.set)
        await passed.wait()

    assert with_client(LINGER_S, story) == []


def test_questions_go_to_the_engine() -> None:
    async def story(client: Client) -> None:
        partition = Partition("events", 0)
        assert await client.lingering.bounds([partition], 1) == {partition: BOUNDS}
        assert await client.lingering.at_times({partition: 5}, 1) == {partition: OffsetAndTimestamp(7, 5)}

    assert with_client(FOR_EVER_S, story) == []
