"""Running members on Kafka set the offsets of a plan; what the operator needs to know it asks one of them."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.sidecar.fleet.reset_story import WITHIN_S, operated, replay
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka
RECORDS = 7


def test_dry_run_execution_and_undo_with_running_members(
    tmp_path: Path, kafka: Kafka, unique_name: str
) -> None:
    kafka.create_topic(unique_name, partitions=2)
    producer = Producer(kafka.client_config())
    for number in range(2 * RECORDS):
        producer.produce(unique_name, b"v", None, number % 2)
    assert producer.flush(WITHIN_S) == 0

    async def story() -> None:
        async with operated(tmp_path, kafka.bootstrap, unique_name) as operator:
            await replay(operator, RECORDS)

    asyncio.run(story())
