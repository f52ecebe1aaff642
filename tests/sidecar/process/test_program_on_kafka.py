"""The sidecar with an application beside it where Kafka has the records: they flow, and a clean stop repeats none."""

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.app import App
from tests.support.app import running as attached
from tests.support.coordinator import QUICK, serving
from tests.support.kafka import Kafka
from tests.support.sidecar import Deliverer, delivering

pytestmark = pytest.mark.kafka
PARTITIONS = 4
RECORDS = 100
FLUSH_S = 30


def flow_and_stop(folder: Path, kafka: Kafka, topic: str, *flags: str) -> None:
    """One sidecar stops in the middle, another one goes on where it was."""
    kafka.create_topic(topic, partitions=PARTITIONS)
    producer = Producer(kafka.client_config())
    for partition in range(PARTITIONS):
        for number in range(RECORDS):
            producer.produce(topic, value=str(number).encode(), partition=partition)
    assert producer.flush(FLUSH_S) == 0
    more = (f"--topics={topic}", "--commit-interval-ms=60000", "--session-timeout-ms=600000", *flags)
    first, second = (
        Deliverer(folder, kafka.bootstrap, topic, more, name=name) for name in ("first", "second")
    )
    app = App(folder, first.address, ["--pause-ms=1", "--credit=20"])
    next_app = App(folder, second.address, name="next")
    with delivering(first), attached(app):
        app.wait_until(lambda: len(app.done) > PARTITIONS)
        assert first.terminate() == 0
        with delivering(second), attached(next_app):
            next_app.wait_until(lambda: len(app.done) + len(next_app.done) >= PARTITIONS * RECORDS)
            everything = [
                (topic, number, offset) for number in range(PARTITIONS) for offset in range(RECORDS)
            ]
            assert sorted([*app.done, *next_app.done]) == everything
            # The first one committed all that it had done; of the second one nothing is committed for a minute.
            committed = sum(partition == 0 for _, partition, _ in app.done)
            lag = f'rota_lag_records{{group="{topic}",partition="0",topic="{topic}"}}'
            second.wait_until(lambda: second.metrics().get(lag) == RECORDS - committed)
            assert second.terminate() == 0


def test_records_of_kafka_flow_and_a_clean_stop_repeats_none(
    tmp_path: Path, kafka: Kafka, unique_name: str
) -> None:
    flow_and_stop(tmp_path, kafka, unique_name)


def test_records_of_kafka_flow_where_rota_coordinates(tmp_path: Path, kafka: Kafka, unique_name: str) -> None:
    with serving(tmp_path, [*QUICK, "--no-log"]) as coordinator:
        address = f"--coordinator-address={coordinator.address}"
        flow_and_stop(tmp_path, kafka, unique_name, "--coordination=rota", address)
