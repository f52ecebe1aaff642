"""
Applications beside their sidecars on Kafka: restarted, killed, frozen and hung they lose no record, and repeat only what
was not committed.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from typing_extensions import override

from tests.sidecar.delivery_rounds import stories
from tests.sidecar.delivery_rounds.crew import PARTITIONS
from tests.sidecar.delivery_rounds.engine import Engine, Place
from tests.sidecar.delivery_rounds.history import lines
from tests.sidecar.delivery_rounds.member import Setting
from tests.support.kafka import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.soak("delivery")]
# Kafka tells of a rebalance by the answer to a heartbeat: one round takes a partition away, the next gives it.
ROUNDS, HEARTBEAT_MS = 2, 500
CLEAN_MS = ROUNDS * HEARTBEAT_MS + 1_000
WITHIN_S = 20


class KafkaEngine(Engine):
    """One broker."""

    def __init__(self, kafka: Kafka) -> None:
        self.servers = kafka.bootstrap
        self._kafka = kafka
        self._producer = Producer({**kafka.client_config(), "linger.ms": 0})
        self._members: dict[str, Consumer] = {}

    @override
    def make_topic(self, name: str, partitions: int) -> None:
        self._kafka.create_topic(name, partitions=partitions)

    @override
    def produce(self, topic: str, values: Mapping[int, Sequence[str]]) -> Mapping[Place, str]:
        made: dict[Place, str] = {}

        def acknowledge(error: KafkaError | None, message: Message) -> None:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert error is None, error
            assert partition is not None
            assert offset is not None
            assert value is not None
            made[Place(partition, offset)] = value.decode()

        for partition, texts in values.items():
            for text in texts:
                self._producer.produce(topic, text.encode(), partition=partition, on_delivery=acknowledge)
        assert self._producer.flush(WITHIN_S) == 0
        return made

    @override
    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        if group not in self._members:
            self._members[group] = Consumer({**self._kafka.client_config(), "group.id": group})
        wanted = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        found = self._members[group].committed(wanted, timeout=WITHIN_S)
        return {each.partition: each.offset for each in found if each.offset >= 0}

    @override
    def values_in(self, topic: str) -> Sequence[str]:
        consumer = Consumer({**self._kafka.client_config(), "group.id": f"{topic}-reader"})
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WITHIN_S)
            consumer.assign([TopicPartition(topic, 0, 0)])
            messages = consumer.consume(end, timeout=WITHIN_S)
            return [(message.value() or b"").decode() for message in messages]
        finally:
            consumer.close()

    def close(self) -> None:
        """It is not asked any more."""
        for consumer in self._members.values():
            consumer.close()


@pytest.fixture
def setting(kafka: Kafka, unique_name: str) -> Iterator[Setting]:
    engine = KafkaEngine(kafka)
    yield Setting(engine, unique_name, unique_name, CLEAN_MS)
    engine.close()


def test_restarts_kills_and_freezes_lose_nothing_and_repeat_only_what_was_not_committed(
    tmp_path: Path, setting: Setting, seed: int, report: list[str]
) -> None:
    history = stories.restarts_kills_and_freezes(tmp_path, setting, seed)
    report += lines("deliveries: restarts, kills and freezes on Kafka", history)
    assert history.faults() == []


def test_an_application_that_hangs_loses_its_partitions_until_it_goes_on(
    tmp_path: Path, setting: Setting, seed: int, report: list[str]
) -> None:
    history = stories.hangs(tmp_path, setting, seed)
    report += lines("deliveries: applications that hang, on Kafka", history)
    assert history.faults() == []


def test_a_record_that_fails_or_kills_becomes_a_dead_letter_while_its_neighbours_flow(
    tmp_path: Path, setting: Setting, seed: int, report: list[str]
) -> None:
    history = stories.poison(tmp_path, setting, seed)
    report += lines("deliveries: poison on Kafka", history)
    assert history.faults() == []
