"""Consumers and producers with bearer tokens: of an object of the application, and of a token endpoint."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import rota
from rota import errors
from tests.docs.blocks import blocks
from tests.kafka.oauth_logins import ALLOWED, broker, security
from tests.sdk.consumer.own_sidecar import failure_message, shown_to_all, values
from tests.support.kafka import Kafka
from tests.support.kafka.oauth import CLIENT_ID, CLIENT_SECRET, Answer, endpoint, unsecured

pytestmark = pytest.mark.kafka

RECORDS = 20
SESSION_S = 5.0
PROGRAM_S = 120


class Tokens:
    """As kafka-python's `AbstractTokenProvider`: a new token at each call."""

    def __init__(self, lifetime_s: float = 12) -> None:
        self.given: list[str] = []
        self._lifetime_s = lifetime_s

    def token(self) -> str:
        self.given.append(unsecured(lifetime_s=self._lifetime_s))
        return self.given[-1]


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with broker("oauth-tls", SESSION_S) as kafka:
        yield kafka


def login(kafka: Kafka, **more: Any) -> dict[str, Any]:  # noqa: ANN401  settings
    return {
        "bootstrap_servers": kafka.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(security(kafka).ca),
        "sasl_mechanism": "OAUTHBEARER",
        **more,
    }


def of_endpoint(url: str, secret: str = CLIENT_SECRET) -> dict[str, str]:
    return {
        "sasl_oauthbearer_token_endpoint_url": url,
        "sasl_oauthbearer_client_id": CLIENT_ID,
        "sasl_oauthbearer_client_secret": secret,
        "sasl_oauthbearer_scope": "kafka",
    }


def round_trip(kafka: Kafka, topic: str, settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> str:
    """Produce, and consume over several sessions; return what other users of the machine and the log show."""
    kafka.create_topic(topic)
    with (
        rota.Producer(**settings) as producer,
        rota.Consumer(topic, group_id=topic, **settings) as consumer,
    ):
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number)
        producer.flush()
        assert values(consumer, RECORDS) == list(range(RECORDS))
        consumer.commit()
        for _ in range(int(1.6 * SESSION_S)):
            assert consumer.poll(timeout_ms=1_000) == {}
        producer.send(topic, b"%d" % RECORDS).result(30)
        assert values(consumer, 1) == [RECORDS]
        consumer.commit()
        return shown_to_all(consumer) + caplog.text + repr(vars(consumer))


def test_tokens_of_an_object_reach_producer_and_sidecar_and_nobody_else(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    tokens = Tokens()
    shown = round_trip(kafka, f"{ALLOWED}object", login(kafka, sasl_oauth_token_provider=tokens), caplog)
    assert len(tokens.given) >= 3
    assert not any(token in shown for token in tokens.given)


def test_tokens_of_an_endpoint_reach_producer_and_sidecar_and_the_secret_nobody_else(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with endpoint(lambda: Answer.token(lifetime_s=12)) as idp:
        shown = round_trip(kafka, f"{ALLOWED}endpoint", login(kafka, **of_endpoint(idp.url)), caplog)
        assert idp.requests[0].form["scope"] == ["kafka"]
    assert CLIENT_SECRET not in shown


def test_a_client_that_the_endpoint_rejects_is_said_by_both_without_its_secret(kafka: Kafka) -> None:
    with endpoint() as idp:
        settings = login(kafka, **of_endpoint(idp.url, "wrong-secret-nobody-sees"))
        with pytest.raises(errors.AuthenticationFailed, match="rejects the client") as raised:
            rota.Producer(**settings)
        message = failure_message(f"{ALLOWED}rejected", {"group_id": f"{ALLOWED}rejected", **settings})  # type: ignore[typeddict-item]
    assert "rejects the client (401, invalid_client); check the client id" in message
    assert "nobody-sees" not in message + str(raised.value)


def test_an_object_without_a_token_is_said(kafka: Kafka) -> None:
    class Broken:
        def token(self) -> str:
            raise ValueError(CLIENT_SECRET)

    settings = login(kafka, sasl_oauth_token_provider=Broken())
    with (
        pytest.raises(
            errors.AuthenticationFailed, match="the token provider Broken raised ValueError"
        ) as raised,
        rota.Consumer(f"{ALLOWED}broken", group_id=f"{ALLOWED}broken", **settings) as consumer,
    ):
        consumer.poll(timeout_ms=1_000)
    assert CLIENT_SECRET not in str(raised.value)


def test_the_guides_program_runs_as_printed(kafka: Kafka) -> None:
    kafka.create_topic("payments")
    (program,) = (block.text for block in blocks("guide/security.md") if block.language == "python")
    with endpoint(lambda: Answer.token("admin")) as idp:
        environment = {
            "KAFKA": kafka.bootstrap,
            "KAFKA_CA": str(security(kafka).ca),
            "TOKEN_ENDPOINT": idp.url,
            "CLIENT_ID": CLIENT_ID,
            "CLIENT_SECRET": CLIENT_SECRET,
        }
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
        )
    assert (done.returncode, done.stdout) == (0, "paid\n"), done.stderr
