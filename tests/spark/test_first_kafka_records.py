"""Timestamps of single records of Apache Kafka, as a driver looks them up for its lag in seconds."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from rota_spark.first_records import FirstRecords, Found, first_records_at
from tests.support.kafka import Kafka

pytestmark = pytest.mark.kafka

AT_MS = 1_700_000_000_000
PARTITIONS = 3
WITHIN_S = 60


@pytest.fixture
def records(kafka: Kafka) -> Iterator[FirstRecords]:
    with first_records_at(kafka.bootstrap, read_committed=True) as records:
        yield records


def test_each_partitions_first_committed_record_at_or_behind_an_offset_is_found(
    kafka: Kafka, records: FirstRecords, unique_name: str
) -> None:
    kafka.create_topic(unique_name, partitions=PARTITIONS)
    producer = Producer({**kafka.client_config(), "transactional.id": unique_name, "linger.ms": 0})
    producer.init_transactions(WITHIN_S)
    for kept, base_ms in ((True, AT_MS), (False, AT_MS + 1000), (True, AT_MS + 2000)):
        producer.begin_transaction()
        for number in range(PARTITIONS):
            for index in range(200):
                producer.produce(unique_name, b"x" * 1000, partition=number, timestamp=base_ms + index)
        producer.flush(WITHIN_S)
        if kept:
            producer.commit_transaction(WITHIN_S)
        else:
            producer.abort_transaction(WITHIN_S)

    # Behind offset 200 are the marker of the first transaction, the aborted records, and the marker behind them.
    found = records.look_up({(unique_name, 0): 0, (unique_name, 1): 150, (unique_name, 2): 200})
    assert found == Found(
        {(unique_name, 0): AT_MS, (unique_name, 1): AT_MS + 150, (unique_name, 2): AT_MS + 2000}
    )
    assert records.look_up({(unique_name, 0): 603}) == Found({})
    assert records.look_up({(unique_name, 1): 151}) == Found({(unique_name, 1): AT_MS + 151})


def test_a_partition_that_cannot_be_read_is_left_out_with_its_problem(
    kafka: Kafka, records: FirstRecords, unique_name: str
) -> None:
    kafka.create_topic(unique_name, partitions=2)
    producer = Producer(kafka.client_config())
    producer.produce(unique_name, b"x", partition=0, timestamp=AT_MS)
    producer.flush(WITHIN_S)
    found = records.look_up({(unique_name, 0): 0, (unique_name, 1): 99})
    assert found.times_ms == {(unique_name, 0): AT_MS}
    assert f"{unique_name}-1 cannot be read" in found.problem
