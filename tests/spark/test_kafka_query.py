"""The same query with records and group on Apache Kafka; executors read with confluent-kafka."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

import rota_spark
from rota_spark import Settings
from rota_spark.core.plan import Range
from rota_spark.readers import records_at
from tests.spark.results import AVAILABLE_NOW, WITHIN_S, Results
from tests.support.kafka import Kafka
from tests.support.processes import steady_ms
from tests.support.records import AT_MS
from tests.support.sidecar import QUICK

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

PARTITIONS = 3


def produce_with_an_aborted_transaction(kafka: Kafka, topic: str, records: int) -> None:
    """So many committed records in each partition, an aborted one in the middle, and its markers at the end."""
    producer = Producer({**kafka.client_config(), "transactional.id": topic})
    producer.init_transactions(WITHIN_S)
    for half, is_kept in ((0, True), (None, False), (1, True)):
        producer.begin_transaction()
        for number in range(PARTITIONS):
            values = (
                ["aborted"]
                if half is None
                else [str(half * records // 2 + each) for each in range(records // 2)]
            )
            for value in values:
                producer.produce(
                    topic, value, key="k", partition=number, timestamp=AT_MS, headers=[("h", b"x")]
                )
        producer.flush(WITHIN_S)
        if is_kept:
            producer.commit_transaction(WITHIN_S)
        else:
            producer.abort_transaction(WITHIN_S)


def test_all_committed_records_of_kafka_are_read_once_and_the_groups_offsets_are_at_the_end(
    spark_session: SparkSession, kafka: Kafka, unique_name: str
) -> None:
    kafka.create_topic(unique_name, partitions=PARTITIONS)
    produce_with_an_aborted_transaction(kafka, unique_name, 400)
    settings = Settings(
        bootstrap_servers=kafka.bootstrap,
        group_id=unique_name,
        topics=[unique_name],
        max_records_per_batch=700,
        sidecar_flags=QUICK,
    )
    results = Results()

    with rota_spark.process(spark_session, results, settings, trigger=AVAILABLE_NOW) as query:
        assert query.await_termination(WITHIN_S)

    for number in range(PARTITIONS):
        values = [value for partition, _, value in results.rows if partition == number]
        assert values == [str(each) for each in range(400)]
    consumer = Consumer({**kafka.client_config(), "group.id": unique_name})
    partitions = [TopicPartition(unique_name, number) for number in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(each, WITHIN_S)[1] for each in partitions]
    assert [each.offset for each in consumer.committed(partitions, WITHIN_S)] == ends
    consumer.close()

    rota_spark.register(spark_session)
    options = {"bootstrapServers": kafka.bootstrap, "topics": unique_name}
    row = spark_session.read.format("rota").options(**options).load().orderBy("partition", "offset").first()
    assert row is not None
    assert (row.key, row.value, row.topic, row.headers) == (b"k", b"0", unique_name, [("h", b"x")])
    assert row.timestamp.timestamp() * 1000 == AT_MS


# Behind a range of the first kind there are more records, behind one of the second there are none.
@pytest.mark.parametrize(("partitions", "records"), [(1, 200), (20, 10)])
def test_ranges_of_few_records_are_read_without_waiting_for_more(
    kafka: Kafka, unique_name: str, partitions: int, records: int
) -> None:
    kafka.create_topic(unique_name, partitions=partitions)
    for partition in range(partitions):
        produce_to_one_partition(kafka, unique_name, records, partition)
    ranges = [
        Range(unique_name, partition, start, start + 10)
        for partition in range(partitions)
        for start in range(0, records, 10)
    ]
    with records_at(kafka.bootstrap, read_committed=True) as reader:
        began_ms = steady_ms()
        offsets = [
            offset for each in ranges for batch in reader.read(each) for offset in batch["offset"].to_pylist()
        ]
        took_ms = steady_ms() - began_ms
    assert offsets == [offset for each in ranges for offset in range(each.start, each.end)]
    # A broker waits for half a second for what is not there.
    assert took_ms < len(ranges) * 250


def produce_to_one_partition(kafka: Kafka, topic: str, records: int, partition: int = 0) -> None:
    """Append so many records."""
    producer = Producer(kafka.client_config())
    for number in range(records):
        producer.produce(topic, str(number), partition=partition)
    producer.flush(WITHIN_S)
