"""The operator lets a group on Kafka's brokers rebalance: the member that leads it joins again."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.sidecar.fleet.skewed import PARTITIONS, moves_the_neighbours
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka
WITHIN_S = 60


def test_an_ordered_rebalance_moves_other_partitions_away_from_a_hot_one(
    tmp_path: Path, kafka: Kafka, unique_name: str
) -> None:
    kafka.create_topic(unique_name, partitions=PARTITIONS)
    producer = Producer(kafka.client_config())

    def send(partition: int) -> None:
        producer.produce(unique_name, b"v", None, partition)
        producer.poll(0)

    asyncio.run(moves_the_neighbours(tmp_path, kafka.bootstrap, unique_name, send))
    assert producer.flush(WITHIN_S) == 0
