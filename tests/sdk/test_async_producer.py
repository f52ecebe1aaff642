"""rota.AsyncProducer on a real Rota log, alone and for a member of a group."""

import asyncio
from collections.abc import Coroutine, Iterator

import pytest

import rota
from rota import errors
from rota.log_reader import AsyncLogReader
from tests.support import member as members
from tests.support.coordinator import serving
from tests.support.workdir import workdir

pytestmark = pytest.mark.process

STORY_S = 60
PARTITIONS = 2


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of one for all tests, which keep apart by their topics."""
    with workdir("async-producer") as folder, serving(folder) as coordinator:
        yield f"rota://{coordinator.address}"


@pytest.fixture
def topic(server: str, unique_name: str) -> str:
    rota.create_topics(server, {unique_name: PARTITIONS})
    return unique_name


def run(body: Coroutine[None, None, None]) -> None:
    """A story that comes to an end."""

    async def bounded() -> None:
        async with asyncio.timeout(STORY_S):
            await body

    asyncio.run(bounded())


async def values(server: str, topic: str) -> list[bytes | None]:
    """Values of partition 0, as a reader at read_committed gets them."""
    reader = AsyncLogReader(server, read_committed=True)
    try:
        (part,) = await reader.fetch({(topic, 0): 0}, max_wait_ms=0)
        return [record.value for record in part]
    finally:
        await reader.close()


def test_records_are_sent_in_order_and_awaited(server: str, topic: str) -> None:
    async def story() -> None:
        async with rota.AsyncProducer(server) as producer:
            assert await producer.partitions_for(topic) == [0, 1]
            futures = [await producer.send(topic, b"%d" % number, partition=0) for number in range(1_000)]
            assert [(await future).offset for future in futures] == list(range(1_000))
            assert (await producer.send_and_wait(topic, b"last", partition=0)).offset == 1_000
        assert await values(server, topic) == [*(b"%d" % number for number in range(1_000)), b"last"]

    run(story())


def test_many_are_sent_at_once(server: str, topic: str) -> None:
    async def story() -> None:
        async with rota.AsyncProducer(server, buffer_memory=20_000, batch_size=5_000) as producer:
            sent = [b"%d" % number for number in range(3_000)]
            found = await (await producer.send_many(topic, sent, [b"key"] * 3_000))
            assert [each.offset for each in found] == list(range(3_000))
        assert len({each.partition for each in found}) == 1

    run(story())


def test_a_full_buffer_is_waited_for(server: str, topic: str) -> None:
    async def story() -> None:
        async with rota.AsyncProducer(server, buffer_memory=1_000, batch_size=500) as producer:
            futures = [await producer.send(topic, b"x" * 100, partition=0) for _ in range(200)]
            assert [(await future).offset for future in futures] == list(range(200))

    run(story())


def test_only_what_was_committed_is_read(server: str, topic: str, unique_name: str) -> None:
    async def story() -> None:
        async with rota.AsyncProducer(server, transactional_id=unique_name) as producer:
            await producer.init_transactions()
            with pytest.raises(ZeroDivisionError):
                await fail(producer)
            async with producer.transaction():
                await producer.send(topic, b"committed", partition=0)
        assert await values(server, topic) == [b"committed"]

    async def fail(producer: rota.AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"aborted", partition=0)
            raise ZeroDivisionError

    run(story())


def test_offsets_of_a_member_count_with_the_transaction(server: str, topic: str, unique_name: str) -> None:
    async def story() -> None:
        here = (topic, 0)
        assign = members.in_turn([here])
        address = server.removeprefix("rota://")
        async with (
            members.member(address, unique_name, assign) as member,
            rota.AsyncProducer(server, transactional_id=unique_name) as producer,
        ):
            await member.join()
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send(topic, b"made of it", partition=0)
                await producer.send_offsets_to_transaction({here: 17}, member.metadata)
            assert await member.fetch([here]) == {here: 17}
            await producer.begin_transaction()
            await producer.send(topic, b"given up", partition=0)
            await producer.send_offsets_to_transaction({here: 99}, member.metadata)
            await producer.abort_transaction()
            assert await member.fetch([here]) == {here: 17}
        assert await values(server, topic) == [b"made of it"]

    run(story())


def test_a_transaction_of_an_old_generation_is_aborted_by_its_end(
    server: str, topic: str, unique_name: str
) -> None:
    async def story() -> None:
        here = (topic, 0)
        assign = members.in_turn([here])
        address = server.removeprefix("rota://")
        async with (
            members.member(address, unique_name, assign) as first,
            members.member(address, unique_name, assign) as second,
            rota.AsyncProducer(server, transactional_id=unique_name) as producer,
        ):
            await first.join()
            old = first.metadata
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send(topic, b"of an old owner", partition=0)
            await producer.send_offsets_to_transaction({here: 17}, old)
            # Another one comes, and the group goes on to its next generation.
            await asyncio.gather(second.join(), rejoin(first))

            with pytest.raises(errors.IllegalGeneration):
                await producer.commit_transaction()
            with pytest.raises(errors.TransactionAbortable, match="generation"):
                await producer.send(topic, b"more", partition=0)
            await producer.abort_transaction()

            assert await first.fetch([here]) == {}
            (owner,) = (each for each in (first, second) if here in each.partitions)
            async with producer.transaction():
                await producer.send(topic, b"of a new one", partition=0)
                await producer.send_offsets_to_transaction({here: 5}, owner.metadata)
            assert await first.fetch([here]) == {here: 5}
            await producer.begin_transaction()
            with pytest.raises(errors.RotaError) as refused:
                await producer.send_offsets_to_transaction({here: 17}, old)
            assert refused.value.name == "ILLEGAL_GENERATION"
            await producer.abort_transaction()
        assert await values(server, topic) == [b"of a new one"]

    run(story())


async def rejoin(member: members.GroupMember) -> None:
    await member.rebalancing.wait()
    await member.join()


def test_a_producer_that_was_not_started_says_so(server: str) -> None:
    async def story() -> None:
        with pytest.raises(errors.IllegalState, match="async with"):
            await rota.AsyncProducer(server).send("any", b"x")

    run(story())
