"""A sidecar on Kafka's brokers reports the cluster's id to Fleet, looks up offsets of partitions without an owner, and removes an instance."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.sidecar.fleet.headquarters import Headquarters, serving
from tests.sidecar.fleet.instances import removes_an_ended_instance
from tests.support.kafka import Kafka
from tests.support.sidecar import Deliverer

pytestmark = pytest.mark.kafka
WITHIN_S = 60
RECORDS = 7
AT_MS = 1_700_000_000_000


@pytest.fixture
def topic(kafka: Kafka, unique_name: str) -> str:
    """A topic with two partitions; records are in the first one."""
    kafka.create_topic(unique_name, partitions=2)
    producer = Producer(kafka.client_config())
    for number in range(RECORDS):
        producer.produce(unique_name, b"v", None, 0, timestamp=AT_MS + number)
    assert producer.flush(WITHIN_S) == 0
    return unique_name


def commit_as_another_client(kafka: Kafka, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({**kafka.client_config(), "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


async def offsets(
    fleet: Headquarters, number: int, what: pb.OffsetKind.ValueType, topic: str, timestamp_ms: int = 0
) -> dict[int, int]:
    query = pb.QueryOffsets(topics=[pb.TopicPartitions(topic=topic)], what=what, timestamp_ms=timestamp_ms)
    answer = await fleet.order(number, query_offsets=query)
    assert (answer.error, list(answer.errors)) == ("", [])
    return {each.partition: each.offset for each in answer.offsets}


def test_cluster_id_and_offsets_come_from_the_brokers(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    transactional = Producer({**kafka.client_config(), "transactional.id": topic})
    transactional.init_transactions(WITHIN_S)
    transactional.begin_transaction()
    transactional.produce(topic, b"open", None, 1)
    assert transactional.flush(WITHIN_S) == 0
    commit_as_another_client(kafka, topic, topic, 3)

    async def run() -> None:
        async with serving() as fleet:
            flags = ("--static", f"--fleet={fleet.address}", "--isolation-level=read_committed")
            sidecar = Deliverer(tmp_path, kafka.bootstrap, topic, (f"--topics={topic}", *flags))
            await asyncio.to_thread(sidecar.start)
            try:
                await fleet.wait_until(lambda: bool(fleet.reports) and fleet.last.cluster_id != "")
                admin = AdminClient(kafka.client_config())
                assert fleet.last.cluster_id == admin.describe_cluster().result(WITHIN_S).cluster_id
                assert fleet.last.member.state == pb.MEMBER_STATE_DOWN, "it owns nothing: it waits for a name"
                assert await offsets(fleet, 1, pb.OFFSET_KIND_COMMITTED, topic) == {0: 3}
                assert await offsets(fleet, 2, pb.OFFSET_KIND_START, topic) == {0: 0, 1: 0}
                assert await offsets(fleet, 3, pb.OFFSET_KIND_END, topic) == {0: RECORDS, 1: 0}
                found = await offsets(fleet, 4, pb.OFFSET_KIND_TIMESTAMP, topic, AT_MS + 2)
                assert found[0] == 2
            finally:
                await asyncio.to_thread(sidecar.close)

    try:
        asyncio.run(run())
    finally:
        transactional.abort_transaction(WITHIN_S)


def test_a_member_removes_a_static_one_that_has_ended_without_leaving(
    tmp_path: Path, kafka: Kafka, topic: str
) -> None:
    asyncio.run(removes_an_ended_instance(tmp_path, kafka.bootstrap, topic))
