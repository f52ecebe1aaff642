"""rota.Producer on Kafka after librdkafka has failed for good: what it says is the cause, whichever call meets the failure first."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

import rota
from rota import errors
from rota.producer import kafka_engine


class Failed:
    """
    A producer of librdkafka that another one has fenced: records are refused with "fatal error", and the cause comes from `poll`,
    as often as it is asked, after a moment. When librdkafka does so is a race that no broker can bring about at will.
    """

    def __init__(self, _config: kafka_engine.KafkaConfig) -> None:
        self._refused = False
        self._polls_until_cause = 3

    def __len__(self) -> int:
        return 1

    def produce(self, *_: object, **__: object) -> None:
        self._refused = True
        raise KafkaException(KafkaError(KafkaError._FATAL, "Local: Fatal error", fatal=True))

    def poll(self, _within_s: float) -> int:
        if not self._refused:
            return 0
        self._polls_until_cause -= 1
        if self._polls_until_cause > 0:
            return 0
        raise KafkaException(KafkaError(KafkaError._FENCED, "fenced by a newer instance", fatal=True))

    def purge(self) -> None:
        """Nothing is left to purge."""


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Iterator[rota.Producer]:
    monkeypatch.setattr(kafka_engine, "Producer", Failed)
    with rota.Producer("kafka:9092") as producer:
        yield producer


def test_a_record_that_is_refused_is_refused_with_the_cause(producer: rota.Producer) -> None:
    for _ in range(2):
        with pytest.raises(
            errors.ProducerFenced, match=r"has failed and must be closed: .*fenced by a newer instance"
        ):
            producer.send("orders", b"1", partition=0)
