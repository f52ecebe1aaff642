"""Offsets of groups on Kafka: set by running members, and without any by the operator, if it has credentials."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from rota_operator.cluster.kafka_access import KafkaAccess
from tests.sidecar.fleet.reset_story import KEY, WITHIN_S, Operator, operated, replay
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka
RECORDS = 7
# 2023-11-14T22:13:20Z; the records of a partition are a second apart.
AT_MS = 1_700_000_000_000


def fill(kafka: Kafka, topic: str) -> None:
    """Make a topic of two partitions with RECORDS each."""
    kafka.create_topic(topic, partitions=2)
    producer = Producer(kafka.client_config())
    for number in range(2 * RECORDS):
        producer.produce(topic, b"v", None, number % 2, timestamp=AT_MS + number // 2 * 1_000)
    assert producer.flush(WITHIN_S) == 0


def test_dry_run_execution_and_undo_with_running_members(
    tmp_path: Path, kafka: Kafka, unique_name: str
) -> None:
    fill(kafka, unique_name)

    async def story() -> None:
        async with operated(tmp_path, kafka.bootstrap, unique_name) as operator:
            await replay(operator, RECORDS)

    asyncio.run(story())


def test_a_group_without_members_is_reset_with_the_operators_own_credentials(
    kafka: Kafka, unique_name: str
) -> None:
    fill(kafka, unique_name)
    access = KafkaAccess((("bootstrap.servers", kafka.bootstrap),))

    async def story() -> None:
        operator = Operator(kafka.bootstrap, unique_name, access)
        try:
            async with asyncio.timeout(WITHIN_S):
                assert await operator.reset("replay-1", offset=5) == "Completed"
                assert await operator.reset("replay-2", datetime="2023-11-14T22:13:22Z") == "Completed"
        finally:
            await operator.groups.close()
        assert operator.plan(operator.record["planConfigMap"]) == dict.fromkeys(range(2), ("5", "2"))
        assert operator.plan(operator.record["undoConfigMap"]) == dict.fromkeys(range(2), ("2", "5"))

    asyncio.run(story())
    consumer = Consumer({**kafka.client_config(), "group.id": unique_name})
    found = consumer.committed([TopicPartition(unique_name, number) for number in range(2)], timeout=WITHIN_S)
    consumer.close()
    assert [each.offset for each in found] == [2, 2]


def test_without_members_and_credentials_a_reset_waits_and_says_what_to_do(
    kafka: Kafka, unique_name: str
) -> None:
    async def story() -> None:
        operator = Operator(kafka.bootstrap, unique_name, KafkaAccess(problem="add main to kafka.clusters"))
        operator.request("replay-1", dry_run=False, earliest=True)
        await operator.resets.step(KEY)
        assert operator.record["phase"] == "Waiting"
        assert (
            "start one, or reset the offsets with `rota groups reset`; add main" in operator.record["message"]
        )
        await operator.groups.close()

    asyncio.run(story())
