"""A rollout of dynamic members with real sidecars and the operator's Fleet causes no rebalance, on Rota's coordinator and on Kafka."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.sidecar.fleet.rollout import PARTITIONS, Deployment, rolls_out
from tests.support.coordinator import Coordinator
from tests.support.kafka import Kafka
from tests.support.records import fill

RECORDS = 500
FLUSH_S = 30


@pytest.mark.process
def test_a_rollout_causes_no_rebalance(tmp_path: Path, coordinator: Coordinator) -> None:
    coordinator.make_topic("rollout", PARTITIONS)
    fill(coordinator.address, "rollout", PARTITIONS, RECORDS)

    async def run() -> None:
        await rolls_out(Deployment(tmp_path, f"rota://{coordinator.address}", "rollout"), RECORDS)

    asyncio.run(run())


@pytest.mark.kafka
def test_a_rollout_on_kafka_causes_no_rebalance(tmp_path: Path, kafka: Kafka, unique_name: str) -> None:
    kafka.create_topic(unique_name, partitions=PARTITIONS)
    producer = Producer(kafka.client_config())
    for partition in range(PARTITIONS):
        for number in range(RECORDS):
            producer.produce(unique_name, value=str(number).encode(), partition=partition)
    assert producer.flush(FLUSH_S) == 0

    async def run() -> None:
        await rolls_out(Deployment(tmp_path, kafka.bootstrap, unique_name), RECORDS)

    asyncio.run(run())
