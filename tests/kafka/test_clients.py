"""Clients of the broker that tests start: who can read and write, and who is turned away."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from tests.support.kafka import Kafka, running, wire
from tests.support.kafka.security import MECHANISMS

pytestmark = pytest.mark.kafka

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def secured() -> Iterator[Kafka]:
    with running(security="scram-tls") as kafka:
        yield kafka


def test_what_is_produced_is_consumed(kafka: Kafka, unique_name: str) -> None:
    kafka.create_topic(unique_name, partitions=2)
    sent = {f"key-{number}".encode(): f"value-{number}".encode() for number in range(20)}

    produce(kafka, unique_name, sent)

    received = {message.key(): message.value() for message in consume(kafka, unique_name, len(sent))}
    assert received == sent


def test_user_with_the_right_password_reads_and_writes_over_tls(secured: Kafka, unique_name: str) -> None:
    secured.create_topic(unique_name)

    produce(secured, unique_name, {b"key": b"value"})

    assert [message.value() for message in consume(secured, unique_name, 1)] == [b"value"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_is_accepted(secured: Kafka, mechanism: str) -> None:
    admin = AdminClient({**secured.client_config(), "sasl.mechanism": mechanism})

    assert len(admin.list_topics(timeout=TIMEOUT_S).brokers) == 1


def test_wrong_password_is_refused(secured: Kafka) -> None:
    wrong = {**secured.client_config(), "sasl.password": "not-the-password"}

    assert first_error(wrong) == KafkaError._AUTHENTICATION


def test_plaintext_client_is_refused_on_the_tls_listener(secured: Kafka) -> None:
    plaintext: dict[str, str | int | float | bool] = {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": "PLAINTEXT",
    }

    assert first_error(plaintext) == KafkaError._ALL_BROKERS_DOWN

    host, port = secured.bootstrap.split(":")
    assert wire.answers(host, int(port), secured.security.tls()), "the broker is up: it refused the client"


def produce(kafka: Kafka, topic: str, records: dict[bytes, bytes]) -> None:
    producer = Producer({**kafka.client_config(), "acks": "all"})
    for key, value in records.items():
        producer.produce(topic, key=key, value=value)
    assert producer.flush(TIMEOUT_S) == 0


def consume(kafka: Kafka, topic: str, count: int) -> list[Message]:
    consumer = Consumer({**kafka.client_config(), "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        return consumer.consume(count, timeout=TIMEOUT_S)
    finally:
        consumer.close()


def first_error(config: dict[str, str | int | float | bool]) -> int:
    """The code of the first error that a client with this configuration reports."""
    seen: list[KafkaError] = []
    admin = AdminClient(config, error_cb=seen.append)
    admin.describe_cluster()  # Any request makes it connect.
    admin.poll(TIMEOUT_S)
    return seen[0].code()
