"""Topics, partitions and records count for the creator of their topic: as they come, as they go, and after a restart."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rota_coordinator.core.instants import WallMs
from rota_coordinator.core.log.administration import Creator
from rota_coordinator.core.log.batch import ROW_BYTES
from rota_coordinator.core.log.config import LogConfig
from rota_coordinator.core.quotas import NOTHING, Budget, Quota, Quotas, Usage
from rota_coordinator.runtime.environments import LogEnvironment
from rota_coordinator.runtime.topic_log import TopicLog
from rota_coordinator.store.sqlite import open_store
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.v1 import log_pb2 as pb
from tests.coordinator.virtual import Virtual
from tests.log.engine import START_MS, Engine, batch

# What a batch of the tests takes.
BATCH = len(batch().payload) + ROW_BYTES
FRESH = itertools.count()


@asynccontextmanager
async def served(file: Path, quota: Quota) -> AsyncIterator[TopicLog]:
    """The log of a file, and its principals' quotas."""
    store = open_store(file)
    virtual = await Virtual().start()
    environment = LogEnvironment(
        store,
        LogConfig(),
        now_ms=lambda: WallMs(START_MS),
        new_uuid=lambda: next(FRESH).to_bytes(16, "big"),
        report=virtual.reports.append,
        report_exception=virtual.faults.append,
        quotas=Quotas(lambda principal: quota),
    )
    log = virtual.service.serve_log(environment)
    await log.start()
    try:
        yield log
    finally:
        await log.finish()
        await store.close()
    assert (virtual.faults, virtual.reports) == ([], [])


async def create(log: TopicLog, *topics: tuple[str, int]) -> list[pb.TopicResult]:
    """Create topics in one request of one principal."""
    request = pb.CreateTopicsRequest()
    for name, partitions in topics:
        request.topics.add(name=name, partitions=partitions, retention_ms=-1, retention_bytes=-1)
    creator = Creator("orders", Budget(log.environment.quotas).reserve)
    reply = await log.decide(
        lambda core, effects: core.create_topics(request, log.environment.new_uuid, effects, creator)
    )
    return list(reply.topics)


async def produce(log: TopicLog, *batches: int, topic: str = "a") -> list[int]:
    """Send so many batches to each partition, in one request; the errors."""
    reserve = Budget(log.environment.quotas).reserve
    asked = [
        pb.ProduceRequest.Partition(topic=topic, index=index, batches=[batch()] * count)
        for index, count in enumerate(batches)
    ]
    answers = await log.decide(
        lambda core, effects: [core.append(each, "", WallMs(START_MS), effects, reserve) for each in asked]
    )
    for each in answers:
        assert bool(each.error_message) == bool(each.error_code)
    return [each.error_code for each in answers]


async def used(log: TopicLog, expected: Usage) -> None:
    """Wait until the principal uses that; rows are deleted piece by piece, between other work of the store."""
    async with asyncio.timeout(10):
        while log.environment.quotas.used("orders") != expected:
            await log.environment.store.load(0)


def test_topics_of_one_request_are_counted_together(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path / "c.db", Quota()._replace(topics=2, partitions=5)) as log:
            made = await create(log, ("a", 3), ("b", 3), ("c", 1), ("d", 1))
            assert [each.error_code for each in made] == [
                codes.NONE,
                codes.POLICY_VIOLATION,
                codes.NONE,
                codes.POLICY_VIOLATION,
            ]
            assert "has 0 partitions and would have 6, but its quota is 5" in made[1].error_message
            assert "has 0 topics and would have 3, but its quota is 2" in made[3].error_message
            assert log.environment.quotas.used("orders") == Usage(topics=2, partitions=4)

    asyncio.run(body())


def test_partitions_that_are_added_count_for_the_creator_of_the_topic(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path / "c.db", Quota()._replace(partitions=3)) as log:
            await create(log, ("a", 1), ("b", 1))
            request = pb.CreatePartitionsRequest()
            request.topics.add(name="a", partitions=2)
            request.topics.add(name="b", partitions=2)
            reserve = Budget(log.environment.quotas).reserve
            grown = await log.decide(lambda core, effects: core.create_partitions(request, effects, reserve))
            assert [each.error_code for each in grown.topics] == [codes.NONE, codes.POLICY_VIOLATION]
            assert "--quota-partitions" in grown.topics[1].error_message
            assert log.environment.quotas.used("orders").partitions == 3

    asyncio.run(body())


def test_a_partition_gets_all_its_batches_or_none_and_a_small_batch_counts_what_it_takes(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        async with served(tmp_path / "c.db", Quota()._replace(log_bytes=5 * BATCH)) as log:
            await create(log, ("a", 3))
            assert await produce(log, 2, 4, 3) == [codes.NONE, codes.POLICY_VIOLATION, codes.NONE]
            assert log.environment.quotas.used("orders").log_bytes == 5 * BATCH
            assert await produce(log, 1) == [codes.POLICY_VIOLATION]

    asyncio.run(body())


def test_deleted_records_and_topics_are_free_again_once_they_are_out_of_the_file(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path / "c.db", Quota()) as log:
            quotas = log.environment.quotas
            await create(log, ("a", 2))
            await produce(log, 3, 2)
            assert quotas.used("orders").log_bytes == 5 * BATCH
            request = pb.DeleteRecordsRequest()
            request.partitions.add(topic="a", index=0, before_offset=2)
            await log.delete_records(request)
            await used(log, Usage(topics=1, partitions=2, log_bytes=3 * BATCH))
            gone = pb.DeleteTopicsRequest(names=["a"])
            await log.decide(lambda core, effects: core.delete_topics(gone, effects))
            assert quotas.used("orders")._replace(log_bytes=0) == NOTHING
            await used(log, NOTHING)

    asyncio.run(body())


def test_usage_is_the_same_after_a_restart_and_after_the_log_was_compacted(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path / "c.db", Quota()) as log:
            await create(log, ("a", 2), ("b", 1), ("gone", 1))
            await produce(log, 3, 2)
            await produce(log, 4, topic="gone")
            gone = pb.DeleteTopicsRequest(names=["gone"])
            await log.decide(lambda core, effects: core.delete_topics(gone, effects))
            expected = Usage(topics=2, partitions=3, log_bytes=5 * BATCH)
            log._compact()
        assert log.environment.quotas.used("orders") == NOTHING
        async with served(tmp_path / "c.db", Quota()) as log:
            assert log.environment.quotas.used("orders") == expected

    asyncio.run(body())


def test_a_batch_that_is_there_already_costs_nothing() -> None:
    engine = Engine()
    engine.create()
    producer = engine.init()
    assert not engine.produce(producer, 0).error_code
    asked = pb.ProduceRequest.Partition(topic="t", index=0, batches=[batch(producer, 0)])
    asked.topic = engine.partition().topic
    full = lambda principal, more: "full"
    again = engine.decide(
        lambda effects: engine.log.append(asked, producer.transactional_id, WallMs(START_MS), effects, full)
    )
    assert (again.error_code, again.base_offset) == (codes.NONE, 0)
    asked.batches[0].base_sequence = 1
    more = engine.decide(
        lambda effects: engine.log.append(asked, producer.transactional_id, WallMs(START_MS), effects, full)
    )
    assert (more.error_code, more.error_message) == (codes.POLICY_VIOLATION, "full")
