"""Parameters of Kafka's clients that Rota does not take under their name are refused, in one sentence that says why."""

from typing import Any

import pytest

import rota
from rota import errors
from rota.consumer.options import NAMES as OF_CONSUMERS
from rota.consumer.options import Options, Settings
from rota.consumer.options import options_of as consumer_options
from rota.parameters import CONSUMER, PRODUCER, KafkaParameters
from rota.producer.options import NAMES as OF_PRODUCERS
from rota.producer.options import Options as ProducerOptions
from rota.producer.options import Settings as ProducerSettings
from rota.producer.options import options_of as producer_options

GROUP: dict[str, Any] = {"group_id": "billing", "bootstrap_servers": "kafka:9092"}
CLIENTS = [(CONSUMER, OF_CONSUMERS), (PRODUCER, OF_PRODUCERS)]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"sasl_plain_username": "me"}, "sasl_plain_username is called sasl_username here: use that name"),
        ({"fetch.min.bytes": 1}, "'fetch.min.bytes' is written fetch_min_bytes here: settings are keyword"),
        ({"fetch.wait.max.ms": 1}, "'fetch.wait.max.ms' is written fetch_max_wait_ms here"),
        ({"check.crcs": True}, "'check.crcs' is written check_crcs here"),
        (
            {"check_crcs": False},
            "check_crcs is False, but a consumer has True only: batches that were damaged",
        ),
        ({"allow_auto_create_topics": True}, "a consumer has False only: consumers create no topics: use"),
        ({"ssl_check_hostname": 0}, "ssl_check_hostname is 0, but a consumer has True only"),
        (
            {"api_version": (2, 5)},
            "a consumer has no setting api_version: versions of the protocol are negotiated",
        ),
        (
            {"ssl_password": "hush"},
            "a consumer has no setting ssl_password: keys are read without a password",
        ),
        (
            {"max_in_flight_requests_per_connection": 5},
            "a consumer has no setting max_in_flight_requests_per",
        ),
        ({"fetch_minimum": 1}, "unknown consumer setting 'fetch_minimum': see rota.consumer.options"),
    ],
)
def test_a_parameter_of_kafka_that_a_consumer_does_not_have_is_refused(
    setting: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=message) as raised:
        rota.Consumer("orders", **GROUP, **setting)
    assert "\n" not in str(raised.value)
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"max_in_flight": 1}, "max_in_flight is called max_in_flight_requests_per_connection here"),
        ({"batch.size": 1}, "'batch.size' is written batch_size here"),
        ({"queue.buffering.max.ms": 5}, "'queue.buffering.max.ms' is written linger_ms here"),
        (
            {"allow_auto_create_topics": True},
            "Rota's log creates no topics by itself, and Kafka's brokers decide",
        ),
        ({"metrics_enabled": True}, "a producer has no metrics of its own: on_delivery and interceptors"),
        ({"fetch_min_bytes": 1}, "unknown producer setting 'fetch_min_bytes': see rota.producer.options"),
    ],
)
def test_a_parameter_of_kafka_that_a_producer_does_not_have_is_refused(
    setting: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=message):
        producer_options(setting)  # type: ignore[arg-type]


def test_a_parameter_with_the_one_value_that_rota_has_changes_nothing() -> None:
    of_consumer: Any = {**GROUP, **{name: each.value for name, each in CONSUMER.fixed.items()}}
    assert consumer_options(of_consumer) == Options(**GROUP)
    of_producer: Any = {name: each.value for name, each in PRODUCER.fixed.items()}
    assert producer_options(of_producer) == ProducerOptions()


@pytest.mark.parametrize(("kafka", "known"), CLIENTS)
def test_each_parameter_is_taken_renamed_fixed_or_refused_and_one_of_them_only(
    kafka: KafkaParameters, known: frozenset[str]
) -> None:
    names = [*known, *kafka.renamed, *kafka.fixed, *kafka.refused]
    assert len(set(names)) == len(names)
    assert set(kafka.renamed.values()) - known <= {"bootstrap_servers"}
    for reason in [*kafka.refused.values(), *(each.reason for each in kafka.fixed.values())]:
        assert reason
        assert not reason.endswith(".")


@pytest.mark.parametrize(("settings", "known"), [(Settings, OF_CONSUMERS), (ProducerSettings, OF_PRODUCERS)])
def test_type_checkers_know_every_setting(settings: type, known: frozenset[str]) -> None:
    assert frozenset(settings.__annotations__) == known
