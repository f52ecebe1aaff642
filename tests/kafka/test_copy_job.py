"""The copy job on a Kafka broker: the copier is killed, and each record is copied once, and in its order."""

import random
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.log.copiers import Copier
from tests.log.copies import PARTITIONS, Content, Pair, differences, fill
from tests.support.kafka import Kafka
from tests.support.workdir import logs

pytestmark = pytest.mark.kafka

RECORDS = 100_000
KILLS = 3
PAGE = 10_000
POLLS_MAX = 300


def content(kafka: Kafka, topic: str, isolation: str) -> Content:
    """All of a topic."""
    settings: dict[str, str | int | float | bool] = {
        "group.id": f"{topic}-content",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
    }
    consumer = Consumer({**kafka.client_config(), **settings})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: dict[int, list[Pair]] = {index: [] for index in range(PARTITIONS)}
    ends = 0
    for _ in range(POLLS_MAX):
        for message in consumer.consume(PAGE, timeout=1):
            error, partition = message.error(), message.partition()
            if error is None and partition is not None:
                found[partition].append((message.key(), message.value()))
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                ends += 1
            else:
                raise KafkaException(error)
        if ends == PARTITIONS:
            break
    consumer.close()
    assert ends == PARTITIONS
    return found


def test_a_copy_is_equal_however_often_the_copier_is_killed(
    kafka: Kafka, unique_name: str, tmp_path: Path, seed: int
) -> None:
    source, target = f"{unique_name}-originals", f"{unique_name}-copies"
    for topic in (source, target):
        kafka.create_topic(topic, partitions=PARTITIONS)
    original = fill(kafka.bootstrap, source, RECORDS)
    command = [
        *(sys.executable, "-m", "tests.kafka.copy_worker", f"--bootstrap={kafka.bootstrap}"),
        *(f"--source={source}", f"--target={target}"),
    ]
    copier = Copier("copier", command, logs(tmp_path) / "copier.log")
    try:
        # Those that count are fewer than the offsets, which have gaps.
        for moment in sorted(random.Random(seed).sample(range(RECORDS * 2 // 3), KILLS)):
            copier.wait_until_copied(moment)
            copier.kill()
        copier.finish()
    finally:
        copier.process.kill()

    assert differences(original, content(kafka, target, "read_committed")) == []
    assert sum(map(len, original.values())) == RECORDS
