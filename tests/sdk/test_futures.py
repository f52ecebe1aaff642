"""Futures of records have the names of kafka-python's and Java's futures too."""

from collections.abc import Iterator

import pytest

import rota
from rota import errors
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from tests.sdk.faulty_log import TOPIC, FaultyLog, faulty_log

WITHIN_S = 60


@pytest.fixture(name="log")
def _log() -> Iterator[tuple[FaultyLog, str]]:
    with faulty_log() as found:
        yield found


def test_a_record_that_is_sent_is_passed_to_the_callback_alone(log: tuple[FaultyLog, str]) -> None:
    sent: list[rota.RecordMetadata] = []
    failed: list[errors.RotaError] = []
    with rota.Producer(log[1]) as producer:
        future = producer.send(TOPIC, b"value", partition=1, timestamp_ms=5)
        future.add_callback(sent.append).add_errback(failed.append)
        assert future.get(WITHIN_S) == future.result()
    assert (sent, failed) == ([future.get()], [])
    assert sent[0].timestamp == 5


def test_the_error_of_a_record_that_is_not_sent_is_passed_to_the_errback_alone(
    log: tuple[FaultyLog, str],
) -> None:
    sent: list[rota.RecordMetadata] = []
    failed: list[errors.RotaError] = []
    log[0].fail("Produce", codes.TOPIC_AUTHORIZATION_FAILED)
    with rota.Producer(log[1]) as producer:
        future = producer.send(TOPIC, b"value", partition=1)
        future.add_callback(sent.append).add_errback(failed.append)
        with pytest.raises(errors.TopicAuthorizationFailed):
            future.get(WITHIN_S)
    assert (sent, failed) == ([], [future.exception()])
