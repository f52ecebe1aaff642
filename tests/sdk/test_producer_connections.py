"""Settings of a producer's connections: those that its address does not have are refused, the others reach its client."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import rota
from rota import errors
from rota.producer.connections import check, kafka_connection
from rota.producer.kafka_engine import config_of
from rota.producer.options import Options
from rota.security import credentials_of
from tests.sdk.faulty_log import TOPIC, faulty_log
from tests.support.kafka.oauth import jwt

KAFKA, ROTA, LOCAL = "kafka:9092", "rota://far.example:7070", "127.0.0.1:9092"
LOGIN: dict[str, Any] = {"sasl_mechanism": "PLAIN", "sasl_username": "me", "sasl_password": "hush"}
OAUTH: dict[str, Any] = {"sasl_mechanism": "OAUTHBEARER"}
CLIENT: dict[str, Any] = {
    **OAUTH,
    "sasl_oauthbearer_token_endpoint_url": "https://idp.example/token",
    "sasl_oauthbearer_client_id": "me",
    "sasl_oauthbearer_client_secret": "hush",
}


class Tokens:
    """A token provider as kafka-python's."""

    said = jwt(sub="me", exp=4_000_000_000)

    def token(self) -> str:
        return self.said


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROTA_TLS_CA", raising=False)


@pytest.mark.parametrize(
    ("address", "settings", "message"),
    [
        (
            ROTA,
            {"compression_type": "lz4"},
            "compression_type is 'lz4', but bootstrap_servers is Rota's log, which has none, gzip, zstd: use one of them",
        ),
        (ROTA, {"reconnect_backoff_ms": 50}, "reconnect_backoff_ms is for Kafka"),
        (ROTA, {"connections_max_idle_ms": 1}, "connections_max_idle_ms is for Kafka"),
        (ROTA, LOGIN, "sasl_mechanism is for Kafka, but bootstrap_servers is Rota's log"),
        (ROTA, {"security_protocol": "SSL"}, "TLS needs the authority of Rota's servers: set ssl_cafile, or"),
        (
            ROTA,
            {"security_protocol": "SSL", "ssl_certfile": "c", "ssl_keyfile": "k"},
            "TLS needs the authority",
        ),
        (KAFKA, {"security_protocol": "ssl"}, "security_protocol is 'ssl': use one of PLAINTEXT, SSL"),
        (KAFKA, {"security_protocol": "SASL_SSL"}, "but sasl_mechanism is not set"),
        (KAFKA, {"ssl_certfile": "tls.crt"}, "ssl_keyfile is missing"),
        (
            KAFKA,
            {"security_protocol": "PLAINTEXT", "credentials": rota.Credentials(Path("ca.crt"))},
            "but ca_file of credentials is for TLS",
        ),
        (KAFKA, {**LOGIN, "sasl_mechanism": "GSSAPI"}, "sasl_mechanism is 'GSSAPI': use one of PLAIN"),
        (KAFKA, {**LOGIN, "sasl_password": ""}, "sasl_mechanism is set without sasl_password: set both"),
        (KAFKA, OAUTH, "sasl_mechanism is 'OAUTHBEARER' without a source of tokens"),
        (
            KAFKA,
            {"sasl_oauthbearer_scope": "a"},
            "sasl_oauthbearer_scope is set without sasl_mechanism: use 'OAUTHBEARER'",
        ),
        (
            KAFKA,
            {**CLIENT, "sasl_username": "me"},
            "sasl_username is set, but OAUTHBEARER has tokens instead: omit it",
        ),
        (
            KAFKA,
            CLIENT,
            "the token would be sent to kafka:9092 in plain text: set security_protocol='SASL_SSL'",
        ),
        (ROTA, CLIENT, "sasl_mechanism is for Kafka, but bootstrap_servers is Rota's log"),
        (
            f"{LOCAL},{KAFKA}",
            LOGIN,
            "the password would be sent to kafka:9092 in plain text: set security_protocol",
        ),
        (
            KAFKA,
            {"reconnect_backoff_max_ms": "1s"},
            "reconnect_backoff_max_ms is '1s': use an integer number",
        ),
        (KAFKA, {"connections_max_idle_ms": True}, "connections_max_idle_ms is True: use an integer number"),
    ],
)
def test_settings_that_the_address_does_not_have_are_refused_by_both_producers(
    address: str, settings: dict[str, Any], message: str
) -> None:
    for make in (rota.Producer, rota.AsyncProducer):
        with pytest.raises(errors.InvalidArgument, match=message) as raised:
            make(address, **settings)
        assert "\n" not in str(raised.value)
        assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("address", "settings"),
    [
        (KAFKA, {}),
        (ROTA, {"compression_type": "none", "security_protocol": "PLAINTEXT"}),
        (ROTA, {"compression_type": "gzip"}),
        (ROTA, {"ssl_cafile": "ca.crt", "security_protocol": "SSL"}),
        (KAFKA, {**LOGIN, "security_protocol": "SASL_PLAINTEXT"}),
        (KAFKA, {**LOGIN, "ssl_cafile": "ca.crt"}),
        (KAFKA, {**LOGIN, "kafka_config": {"security.protocol": "SASL_SSL"}}),
        (LOCAL, LOGIN),
        (KAFKA, {"security_protocol": "SASL_SSL", "kafka_config": {"sasl.mechanisms": "OAUTHBEARER"}}),
    ],
)
def test_settings_that_fit_are_taken(address: str, settings: dict[str, Any]) -> None:
    check(Options(**settings), address)


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        ({}, {"client.id": "rota", "compression.type": "none"}),
        (
            {"compression_type": "zstd", "client_id": "billing"},
            {"client.id": "billing", "compression.type": "zstd"},
        ),
        ({"security_protocol": "SSL"}, {"security.protocol": "ssl"}),
        ({"security_protocol": "PLAINTEXT"}, {"security.protocol": "plaintext"}),
        (
            {"security_protocol": "SASL_PLAINTEXT", "kafka_config": {"sasl.mechanism": "OAUTHBEARER"}},
            {"security.protocol": "sasl_plaintext"},
        ),
        (
            {"ssl_cafile": "ca", "ssl_certfile": "c", "ssl_keyfile": "k"},
            {
                "security.protocol": "ssl",
                "ssl.ca.location": "ca",
                "ssl.certificate.location": "c",
                "ssl.key.location": "k",
            },
        ),
        (
            {**LOGIN, "security_protocol": "SASL_SSL"},
            {
                "security.protocol": "sasl_ssl",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "me",
                "sasl.password": "hush",
            },
        ),
        ({"reconnect_backoff_ms": 100}, {"reconnect.backoff.ms": 100}),
        ({"reconnect_backoff_ms": 2_000}, {"reconnect.backoff.ms": 1_000}),
        ({"reconnect_backoff_max_ms": 20}, {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 20}),
        ({"connections_max_idle_ms": 60_000}, {"connections.max.idle.ms": 60_000}),
    ],
)
def test_settings_become_properties_of_librdkafka(settings: dict[str, Any], config: dict[str, Any]) -> None:
    own = {
        "client.id": "rota",
        "compression.type": "none",
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "connections.max.idle.ms": 540_000,
    }
    assert kafka_connection(Options(**settings)) == {**own, **config}


def test_librdkafka_gets_the_tokens_of_an_object() -> None:
    options = Options(**OAUTH, sasl_oauth_token_provider=Tokens(), security_protocol="SASL_SSL")
    check(options, KAFKA)
    config = kafka_connection(options)
    assert (config["sasl.mechanism"], config["security.protocol"]) == ("OAUTHBEARER", "sasl_ssl")
    assert "sasl.username" not in config
    callback = config["oauth_cb"]
    assert callable(callback)
    token, expiry_s, principal = callback("")
    assert (token, principal) == (Tokens.said, "me")
    # A token is believed for a week at most.
    assert 0 < expiry_s < 4_000_000_000
    assert "hush" not in repr(Options(**CLIENT))


def test_a_producer_without_a_token_says_why() -> None:
    class Empty(Tokens):
        said = ""

    options = Options(**OAUTH, sasl_oauth_token_provider=Empty())
    with pytest.raises(
        errors.AuthenticationFailed,
        match="there is no token for the login to Kafka: the token provider Empty has no bearer token",
    ):
        kafka_connection(options)


def test_librdkafka_takes_all_of_them_and_kafka_config_goes_first() -> None:
    options = Options(
        **LOGIN,
        security_protocol="SASL_SSL",
        compression_type="lz4",
        retries=float("inf"),
        reconnect_backoff_ms=3_600_000,
        connections_max_idle_ms=2**31 - 1,
        kafka_config={"client.id": "other"},
    )
    config = config_of(KAFKA, options, lambda error: None)
    assert (config["client.id"], config["message.send.max.retries"]) == ("other", 2**31 - 1)
    Producer({**config, "log_level": 0})


def test_a_delay_between_connections_in_kafka_config_is_beside_none_of_rotas() -> None:
    options = Options(kafka_config={"reconnect.backoff.ms": 5_000})
    config = config_of(KAFKA, options, lambda error: None)
    assert {name: value for name, value in config.items() if name.startswith("reconnect")} == {
        "reconnect.backoff.ms": 5_000
    }
    Producer({**config, "log_level": 0})


def test_the_files_are_the_credentials_of_rotas_log() -> None:
    found = credentials_of(Options(ssl_cafile="ca", ssl_certfile="c", ssl_keyfile="k"))
    assert found == rota.Credentials(Path("ca"), Path("c"), Path("k"))
    own = rota.Credentials(token_file=Path("token"))
    assert credentials_of(Options(credentials=own)) is own
    assert credentials_of(Options()) is None


def test_the_name_of_a_client_begins_the_user_agent_of_its_calls() -> None:
    with faulty_log() as (log, address), rota.Producer(address, client_id="billing ä") as producer:
        producer.send(TOPIC, b"value").result(10)
        assert {agent.partition(" ")[0] for agent in log.user_agents} == {"billing%20%C3%A4"}


def test_a_password_is_not_shown() -> None:
    assert "hush" not in repr(Options(**LOGIN))
