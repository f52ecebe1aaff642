"""Offsets of groups on Kafka: set by running members, and without any by the operator, if it has credentials."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from rota_operator.cluster.kafka_access import KafkaAccess
from tests.sidecar.fleet.reset_kills import count, drawn, play
from tests.sidecar.fleet.reset_story import KEY, WITHIN_S, Operator, operated, replay
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka
RECORDS = 7
# 2023-11-14T22:13:20Z; the records of a partition are a second apart.
AT_MS = 1_700_000_000_000


def fill(kafka: Kafka, topic: str, at_ms: int = AT_MS) -> None:
    """Make a topic of two partitions with RECORDS each, the first ones of this time."""
    kafka.create_topic(topic, partitions=2)
    producer = Producer(kafka.client_config())
    for number in range(2 * RECORDS):
        producer.produce(topic, b"v", None, number % 2, timestamp=at_ms + number // 2 * 1_000)
    assert producer.flush(WITHIN_S) == 0


def committed(kafka: Kafka, group: str) -> list[int]:
    """Return the committed offsets of a group that has the name of its topic."""
    consumer = Consumer({**kafka.client_config(), "group.id": group})
    found = consumer.committed([TopicPartition(group, number) for number in range(2)], timeout=WITHIN_S)
    consumer.close()
    return [each.offset for each in found]


def make_anew(kafka: Kafka, topic: str) -> None:
    """Delete a topic, and create one of the same name with as many records."""
    admin = AdminClient(kafka.client_config())
    admin.delete_topics([topic])[topic].result(WITHIN_S)
    fill(kafka, topic)


def test_dry_run_execution_and_undo_with_running_members(
    tmp_path: Path, kafka: Kafka, unique_name: str
) -> None:
    fill(kafka, unique_name)

    async def story() -> None:
        async with operated(tmp_path, kafka.bootstrap, unique_name) as operator:
            await replay(operator, RECORDS)
            assert await operator.reset("old-topic", dry_run=True, earliest=True) == "Planned"
            await asyncio.to_thread(make_anew, kafka, unique_name)
            await refuse_the_plan_of_the_old_topic(operator)
            assert not any(operator.suspended())

    asyncio.run(story())


async def refuse_the_plan_of_the_old_topic(operator: Operator) -> None:
    assert await operator.reset("old-topic", earliest=True) == "Rejected"
    assert (
        f"topic {operator.topic} was deleted and created again after the plan was made"
        in operator.record["message"]
    )


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
                plan, undo = operator.record["planConfigMap"], operator.record["undoConfigMap"]
                assert await asyncio.to_thread(committed, kafka, unique_name) == [2, 2]
                assert await operator.reset("old-topic", dry_run=True, earliest=True) == "Planned"
                await asyncio.to_thread(make_anew, kafka, unique_name)
                await refuse_the_plan_of_the_old_topic(operator)
        finally:
            await operator.groups.close()
        assert operator.plan(plan) == dict.fromkeys(range(2), ("5", "2"))
        assert operator.plan(undo) == dict.fromkeys(range(2), ("2", "5"))

    asyncio.run(story())


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


@pytest.mark.soak("resets")
@pytest.mark.timeout(600)
def test_resets_are_finished_although_operator_and_sidecars_are_killed_at_each_step(
    tmp_path: Path, kafka: Kafka, unique_name: str, seed: int, counters: Counter[str], *, in_soak: bool
) -> None:
    # Retention would delete older records within a round of the soak.
    fill(kafka, unique_name, time.time_ns() // 1_000_000)
    disturbances = drawn(seed, in_soak=in_soak)
    play(
        tmp_path,
        kafka.bootstrap,
        unique_name,
        RECORDS,
        lambda: dict(enumerate(committed(kafka, unique_name))),
        disturbances,
    )
    counters.update(count(disturbances))
