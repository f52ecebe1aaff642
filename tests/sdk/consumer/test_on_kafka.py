"""A consumer and its sidecar on a real Kafka broker."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import rota
from rota import errors
from tests.sdk.consumer import standstill
from tests.sdk.consumer.delivery_counts import counts_of_retries
from tests.sdk.consumer.static_members import restart_moves_nothing
from tests.support.coordinator import QUICK, serving
from tests.support.kafka import Kafka
from tests.support.ports import free_port

pytestmark = pytest.mark.kafka

WAIT_MS = 60_000
RECORDS = 300


@pytest.fixture
def topic(kafka: Kafka, unique_name: str) -> str:
    kafka.create_topic(unique_name, partitions=3)
    with rota.Producer(kafka.bootstrap) as producer:
        producer.send_many(unique_name, [b"%d" % number for number in range(RECORDS)]).result(30)
    return unique_name


def read(consumer: rota.Consumer, count: int) -> list[rota.Record[Any, Any]]:
    found: list[rota.Record[Any, Any]] = []
    while len(found) < count:
        polled = consumer.poll(timeout_ms=WAIT_MS)
        assert polled, f"{len(found)} of {count} records came"
        found += [record for records in polled.values() for record in records]
    return found


def test_records_come_once_and_offsets_in_a_transaction_are_where_the_next_consumer_begins(
    kafka: Kafka, topic: str
) -> None:
    settings: Any = {"group_id": topic, "bootstrap_servers": kafka.bootstrap, "enable_auto_commit": False}
    with rota.Consumer(topic, **settings) as consumer:
        records = read(consumer, RECORDS)
        assert sorted(int(record.value) for record in records) == list(range(RECORDS))
        ends = {rota.TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
        assert consumer.end_offsets(list(ends)) == ends
        with rota.Producer(kafka.bootstrap, transactional_id=topic) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send_offsets_to_transaction(ends, consumer.group_metadata())
        assert {partition: consumer.committed(partition) for partition in ends} == ends
    with rota.Producer(kafka.bootstrap) as producer:
        producer.send(topic, b"999").result(30)
    with rota.Consumer(topic, **settings) as consumer:
        assert [record.value for record in read(consumer, 1)] == [b"999"]


def test_the_sidecar_of_a_handler_counts_its_retries(kafka: Kafka, unique_name: str, tmp_path: Path) -> None:
    kafka.create_topic(unique_name)
    assert counts_of_retries(unique_name, kafka.bootstrap, tmp_path) == [1, 2, 3]


def test_a_static_member_that_is_restarted_within_its_session_moves_nothing(
    kafka: Kafka, unique_name: str
) -> None:
    kafka.create_topic(unique_name, partitions=4)
    restart_moves_nothing(unique_name, kafka.bootstrap, killed=False)


def test_where_rota_coordinates_records_come_once_and_no_transaction_takes_the_offsets_along(
    tmp_path: Path, kafka: Kafka, topic: str
) -> None:
    with serving(tmp_path, [*QUICK, "--no-log"]) as coordinator:
        settings: Any = {
            "group_id": topic,
            "bootstrap_servers": kafka.bootstrap,
            "coordination": "rota",
            "coordinator_address": coordinator.address,
            "enable_auto_commit": False,
        }
        with rota.Consumer(topic, **settings) as consumer:
            records = read(consumer, RECORDS)
            assert sorted(int(record.value) for record in records) == list(range(RECORDS))
            ends = {rota.TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
            # Nor does it happen unseen, where the producer was not told who coordinates.
            for coordination, refused in (
                ({"coordination": "Rota"}, errors.NotSupported),
                ({}, errors.IllegalGeneration),
            ):
                producer_settings: Any = {"transactional_id": topic, **coordination}
                with rota.Producer(kafka.bootstrap, **producer_settings) as producer:
                    producer.init_transactions()
                    producer.begin_transaction()
                    with pytest.raises(refused):
                        producer.send_offsets_to_transaction(ends, consumer.group_metadata())
                    producer.abort_transaction()
            assert {consumer.committed(partition) for partition in ends} == {None}
            consumer.commit()
            assert {partition: consumer.committed(partition) for partition in ends} == ends
        with rota.Producer(kafka.bootstrap) as producer:
            producer.send(topic, b"999").result(30)
        with rota.Consumer(topic, **settings) as consumer:
            assert [record.value for record in read(consumer, 1)] == [b"999"]


def test_each_reason_for_which_a_partition_stands_still_is_said_and_raised(
    kafka: Kafka, unique_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.create_topic(unique_name, partitions=3)
    with rota.Producer(kafka.bootstrap) as producer:
        for partition in range(3):
            for number in range(standstill.RECORDS):
                producer.send(unique_name, b"%d" % number, partition=partition)
    expired = TopicPartition(unique_name, standstill.EXPIRED, standstill.RECORDS)
    admin = AdminClient(kafka.client_config())
    (deleted,) = admin.delete_records([expired]).values()
    deleted.result(WAIT_MS / 1000)
    standstill.each_is_said(unique_name, kafka.bootstrap, caplog)


def test_a_server_that_is_away_is_said(caplog: pytest.LogCaptureFixture) -> None:
    standstill.a_server_that_is_away_is_said(f"127.0.0.1:{free_port()}", caplog)
