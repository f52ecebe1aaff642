"""Listeners of consumers in several processes on Kafka: all that goes is told before anything that comes, everywhere."""

from functools import partial
from pathlib import Path

import pytest

import rota
from tests.conformance.driver import DEFAULT
from tests.conformance.kafka import KafkaDriver
from tests.sdk.consumer.listener_rules import faults
from tests.sdk.consumer.listener_story import PARTITIONS, several_rebalances
from tests.sdk.consumer.listener_worker import RECORDS_PER_PARTITION
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka
STRATEGIES = ("range", "cooperative-sticky")


def test_revoked_partitions_are_reported_before_assigned_ones_in_every_process(
    tmp_path: Path, kafka: Kafka, unique_name: str
) -> None:
    kafka.create_topic(unique_name, partitions=PARTITIONS)
    with rota.Producer(kafka.bootstrap) as producer:
        for number in range(PARTITIONS * RECORDS_PER_PARTITION):
            producer.send(unique_name, b"%d" % number, partition=number % PARTITIONS)
    connect = partial(KafkaDriver, kafka.bootstrap, DEFAULT)
    groups = several_rebalances(tmp_path, kafka.bootstrap, unique_name, STRATEGIES, connect)
    for group in groups:
        lives = [member.life for member in group.members]
        assert faults(lives, eager=group.strategy == "range") == []
