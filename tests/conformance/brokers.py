"""Kafka's brokers as the cases want them: set up with their settings, and coordinating when the first case begins."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial

from rota_coordinator.core.group.hashing import slot_of
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.clusters import KafkaCluster
from tests.conformance.driver import EXPIRING, FIRST_PRODUCER, Settings, transactional_id
from tests.conformance.kafka import NOT_YET, KafkaDriver
from tests.conformance.members import OTHER_TOPIC, TOPIC, Member
from tests.support.kafka import MORTAL, Kafka

# As tests.support.kafka sets its brokers up.
OFFSETS_PARTITIONS = 4
TRANSACTIONS_PARTITIONS = 2
COORDINATES_WITHIN_S = 30
POLL_S = 0.05


def properties(settings: Settings) -> dict[str, str]:
    """The broker's properties for these settings."""
    return {
        **(MORTAL if settings.mortal or settings.processes > 1 else {}),
        "group.initial.rebalance.delay.ms": str(settings.initial_rebalance_delay_ms),
        "group.max.size": str(settings.members_max),
        "offsets.retention.minutes": str(settings.retention_s // 60),
        "offsets.retention.check.interval.ms": "1000" if settings == EXPIRING else "600000",
    }


def prepare(broker: Kafka, settings: Settings) -> None:
    """Make the topics, and have the broker coordinate."""
    for topic in (TOPIC, OTHER_TOPIC):
        broker.create_topic(topic, partitions=6)
    asyncio.run(coordinates(KafkaDriver(broker.bootstrap, settings)))


async def coordinates(driver: KafkaDriver) -> None:
    """Return when the broker coordinates every group and transaction: asked the first time ever, it prepares that."""
    await driver.find_coordinator("group")
    async with asyncio.timeout(COORDINATES_WITHIN_S):
        for group in one_in_each_partition(OFFSETS_PARTITIONS):
            await until_done(Member(driver, group).commit)
        for group in one_in_each_partition(
            TRANSACTIONS_PARTITIONS, partial(transactional_id, producer=FIRST_PRODUCER)
        ):
            await until_done(partial(driver.begin_transaction, group))
    await driver.close()


async def shared_by(cluster: KafkaCluster) -> None:
    """Return when the brokers coordinate every group together."""
    async with asyncio.timeout(COORDINATES_WITHIN_S):
        for group in one_in_each_partition(OFFSETS_PARTITIONS):
            await until_done(Member(cluster, group).commit)
    await cluster.close()


def one_in_each_partition(partitions: int, name_of: Callable[[str], str] = str) -> list[str]:
    """Groups that, by a name that they give, lie in all partitions."""
    groups = [f"warm-{number}" for number in range(100)]
    found = {slot_of(name_of(group), partitions): group for group in groups}
    assert len(found) == partitions
    return list(found.values())


async def until_done(act: Callable[[], Coroutine[None, None, int]]) -> None:
    """Ask until the broker is ready for it."""
    while (error := await act()) != pb.NONE:
        assert error in NOT_YET, f"the broker does not get ready: error {error}"
        await asyncio.sleep(POLL_S)
