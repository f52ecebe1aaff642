"""Every method of the asynchronous consumer, over a group in memory. What they mean stands in the tests of the other one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from typing_extensions import override

import rota
from rota import errors
from rota.consumer.listeners import Partitions
from rota.testing import Group

P0, P1 = rota.TopicPartition("orders", 0), rota.TopicPartition("orders", 1)
WAIT_MS = 60_000


async def read(consumer: rota.AsyncConsumer, count: int) -> list[int]:
    offsets: list[int] = []
    while len(offsets) < count:
        polled = await consumer.poll(timeout_ms=WAIT_MS)
        assert polled, f"{len(offsets)} of {count} records came"
        offsets += [record.offset for records in polled.values() for record in records]
    return offsets


def using(use: Callable[[rota.AsyncConsumer, Group], Awaitable[None]], **settings: Any) -> None:  # noqa: ANN401  any
    """With ten records in the first of two partitions."""

    async def run() -> None:
        with Group(partitions=2) as group:
            for number in range(10):
                group.send("orders", b"%d" % number, partition=0)
            async with group.async_consumer(**settings) as consumer:
                await use(consumer, group)

    asyncio.run(run())


def test_positions_seeks_and_lookups() -> None:
    async def use(consumer: rota.AsyncConsumer, group: Group) -> None:
        await consumer.subscribe(pattern="ord.*")
        assert consumer.subscription() == set()
        assert await read(consumer, 10) == list(range(10))
        assert consumer.assignment() == {P0, P1}
        await consumer.seek(P0, 8)
        assert await read(consumer, 2) == [8, 9]
        await consumer.seek_to_beginning(P0)
        assert await consumer.position(P0) == 0
        await consumer.seek_to_end()
        assert await consumer.position(P0) == 10
        assert await consumer.partitions_for_topic("orders") == {0, 1}
        assert await consumer.topics() == {"orders"}
        assert list((await consumer.metrics()).values()) == [2]
        assert await consumer.beginning_offsets([P0]) == {P0: 0}
        assert await consumer.end_offsets([P0]) == {P0: 10}
        assert (await consumer.offsets_for_times({P1: 0})) == {P1: None}
        assert (await consumer.group_metadata()).generation_id == 1

    using(use)


def test_commits_of_both_kinds() -> None:
    async def use(consumer: rota.AsyncConsumer, group: Group) -> None:
        completed: list[int] = []
        await consumer.subscribe("orders")
        await read(consumer, 10)
        consumer.commit_async({P0: 3}, lambda offsets, error: completed.append(offsets[P0].offset))
        await consumer.commit({P0: rota.OffsetAndMetadata(4, "so far")})
        assert completed == [3]
        assert await consumer.committed(P0, metadata=True) == rota.OffsetAndMetadata(4, "so far")
        await consumer.commit()
        assert await consumer.committed(P0) == 10

    using(use, enable_auto_commit=False)


def test_pausing_and_resuming() -> None:
    async def use(consumer: rota.AsyncConsumer, group: Group) -> None:
        await consumer.subscribe("orders")
        seen = await read(consumer, 2)
        await consumer.pause(P0)
        assert consumer.paused() == {P0}
        assert await consumer.poll(timeout_ms=50) == {}
        await consumer.resume(P0)
        assert seen + await read(consumer, 8) == list(range(10))

    using(use, max_poll_records=2)


def test_assigning_by_hand_and_unsubscribing() -> None:
    async def use(consumer: rota.AsyncConsumer, group: Group) -> None:
        await consumer.assign([P0])
        await read(consumer, 10)
        with pytest.raises(errors.IllegalState, match="call unsubscribe"):
            await consumer.subscribe("orders")
        await consumer.unsubscribe()
        assert consumer.assignment() == set()
        with pytest.raises(errors.IllegalState, match="not subscribed and has no partitions assigned"):
            await consumer.poll_batches(timeout_ms=50)

    using(use)


def test_subscribing_to_an_empty_list_is_unsubscribing() -> None:
    async def use(consumer: rota.AsyncConsumer, group: Group) -> None:
        await consumer.subscribe("orders")
        await read(consumer, 10)
        await consumer.subscribe([])
        assert (consumer.subscription(), consumer.assignment()) == (set(), set())

    using(use)


def test_waking_a_poll() -> None:
    async def use(consumer: rota.AsyncConsumer, group: Group) -> None:
        asyncio.get_running_loop().call_later(0.05, consumer.wakeup)
        with pytest.raises(errors.WokenUp):
            await consumer.poll(timeout_ms=WAIT_MS)

    using(use)


def test_two_tasks_may_not_poll_together() -> None:
    async def use(consumer: rota.AsyncConsumer, group: Group) -> None:
        waiting = asyncio.create_task(consumer.poll(timeout_ms=WAIT_MS))
        await asyncio.sleep(0)
        with pytest.raises(errors.IllegalState, match="another task"):
            await consumer.poll()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    using(use)


def test_a_plain_listener_does_as_well() -> None:
    calls: list[str] = []

    class Listener(rota.RebalanceListener):
        @override
        def on_partitions_assigned(self, partitions: Partitions) -> None:
            calls.append("assigned")

        @override
        def on_partitions_revoked(self, partitions: Partitions) -> None:
            calls.append("revoked")

    async def use(consumer: rota.AsyncConsumer, group: Group) -> None:
        await consumer.subscribe("orders", listener=Listener())
        await read(consumer, 10)
        group.lose(P1)
        await consumer.poll(timeout_ms=50)

    using(use)
    # What is lost is told as revoked where nobody says otherwise; the last one is that of the end.
    assert calls == ["assigned", "revoked", "revoked"]


def test_partitions_lost_before_close_are_reported_as_lost() -> None:
    calls: list[tuple[str, Partitions]] = []

    class Listener(rota.RebalanceListener):
        @override
        def on_partitions_revoked(self, partitions: Partitions) -> None:
            calls.append(("revoked", partitions))

        @override
        def on_partitions_lost(self, partitions: Partitions) -> None:
            calls.append(("lost", partitions))

    async def use(consumer: rota.AsyncConsumer, group: Group) -> None:
        await consumer.subscribe("orders", listener=Listener())
        await read(consumer, 10)
        group.lose(P1)
        async with asyncio.timeout(WAIT_MS / 1000):
            while consumer._engine.core.next_rebalance() is None:
                await asyncio.sleep(0)
        await consumer.close()

    using(use)
    assert calls == [("lost", [P1]), ("revoked", [P0])]


def test_a_record_that_cannot_be_read_is_passed_by_a_seek() -> None:
    def parse(topic: str, data: bytes | None) -> int:
        if data == b"1":
            raise ValueError("it is broken")
        return int(data or b"")

    async def use(consumer: rota.AsyncConsumer, group: Group) -> None:
        await consumer.subscribe("orders")
        assert (await anext(consumer)).value == 0
        with pytest.raises(errors.DeserializationFailed, match="at offset 1"):
            await anext(consumer)
        await consumer.seek(P0, 2)
        assert (await anext(consumer)).value == 2

    using(use, value_deserializer=parse)
