"""Producers of the command line for Kafka: every `--timeout` is one that librdkafka accepts."""

import pytest

from rota_cli.clusters.clocks import system_clocks
from rota_cli.clusters.connection import Connection
from rota_cli.clusters.kafka.brokers import Brokers
from rota_cli.clusters.kafka.records import KafkaRecords


@pytest.mark.parametrize("timeout_s", [0.1, 10.0, 61.0, 3600.0])
def test_a_producer_is_created_for_every_timeout(timeout_s: float) -> None:
    # No broker is there: librdkafka checks the settings when the producer is created.
    connection = Connection("127.0.0.1:1", "the test", timeout_s=timeout_s)
    records = KafkaRecords(Brokers(connection, system_clocks()))
    for producer in (records.producer(lambda *outcome: None), records.transactional_producer("replay")):
        producer.close(0)
