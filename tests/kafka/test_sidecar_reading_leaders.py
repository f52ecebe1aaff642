"""Records of a real Kafka whose leaders move are read on and written by their new leaders."""

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.python_client.reading import PythonRecords
from rota_sidecar.engines.kafka.python_client.writing import PythonDeadLetterWriter
from rota_sidecar.engines.kafka.reading import KafkaRecords
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.kafka.writing import KafkaDeadLetterWriter
from rota_sidecar.engines.records import DeadLetter, DeadLetterWriter
from tests.kafka.sidecar_reading import WITHIN_S, Client, Writer, play
from tests.sidecar.engines.readers import Reader
from tests.support.kafka import MORTAL, Kafka, running

pytestmark = pytest.mark.kafka

HERE = Partition("moved", 0)


class Both(NamedTuple):
    """A client of Kafka: its reader of records, and its writer of dead letters."""

    records: Client
    dead_letters: Callable[[KafkaSettings], DeadLetterWriter]


CLIENTS: Mapping[str, Both] = {
    "librdkafka": Both(KafkaRecords, KafkaDeadLetterWriter),
    "python": Both(PythonRecords, PythonDeadLetterWriter),
}


def leader_of(kafka: Kafka, partition: Partition) -> int:
    """Return the number of the broker that leads a partition."""
    topics = AdminClient(kafka.client_config()).list_topics(partition.topic, timeout=WITHIN_S).topics
    return int(topics[partition.topic].partitions[partition.number].leader)


@pytest.mark.parametrize("name", CLIENTS)
def test_records_are_read_and_written_on_when_their_leader_dies(name: str) -> None:
    both = CLIENTS[name]
    with running(3, settings=MORTAL) as kafka:
        kafka.create_topic(HERE.topic)
        writer = Writer(kafka, HERE.topic)
        writer.write(b"a", b"b")

        async def story(reader: Reader) -> None:
            dead_letters = both.dead_letters(KafkaSettings(tuple(kafka.bootstrap.split(","))))
            before = [DeadLetter(HERE.topic, b"k", b"c", (), 5)]
            await dead_letters.write(before, WITHIN_S)
            delivery_epoch = reader.open()
            passage = await reader.read_to(HERE, 3, delivery_epoch=delivery_epoch)
            assert passage.values == [b"a", b"b", b"c"]
            waiting = asyncio.create_task(reader.read_to(HERE, 6, offset=3, delivery_epoch=delivery_epoch))
            await asyncio.to_thread(kafka.broker(leader_of(kafka, HERE)).kill)
            await dead_letters.write([before[0], before[0]], WITHIN_S)
            await dead_letters.close()
            await asyncio.to_thread(writer.write, b"d")
            # Dead letters are written at least once.
            values = (await waiting).values
            assert values[:2] == [b"c", b"c"]
            assert set(values) <= {b"c", b"d"}

        play(kafka, story, client=both.records)
