"""A consumer whose own sidecar logs in to Kafka, over TLS: what works, and what an application is told when not."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

import rota
from rota import errors
from rota.consumer.options import Settings
from tests.sdk.consumer.own_sidecar import failure_message, shown_to_all, values
from tests.support.certificates import Authority
from tests.support.kafka import running
from tests.support.kafka.security import Guarded

pytestmark = pytest.mark.kafka

TOPIC = "orders"
RECORDS = 20
FLUSH_S = 30
WRONG = "wrong-password-nobody-sees"


class Known(NamedTuple):
    """A broker behind TLS, whose clients show a certificate, too; and who may do everything there."""

    bootstrap: str
    security: Guarded

    def settings(
        self, mechanism: str, *, ca_file: Path | None = None, password: str | None = None, user: str = ""
    ) -> Settings:
        """Of a consumer."""
        client = self.security.client
        return {
            "group_id": f"billing-{mechanism}",
            "bootstrap_servers": self.bootstrap,
            "credentials": rota.Credentials(
                ca_file=ca_file or self.security.ca, certificate_file=client.certificate, key_file=client.key
            ),
            "sasl_mechanism": mechanism,
            "sasl_username": user or self.security.admin,
            "sasl_password": self.security.admin_password if password is None else password,
        }


@pytest.fixture(scope="module")
def known() -> Iterator[Known]:
    with running(security="guarded") as kafka:
        kafka.create_topic(TOPIC)
        producer = Producer(kafka.client_config())
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number)
        assert producer.flush(FLUSH_S) == 0
        assert isinstance(kafka.security, Guarded)
        yield Known(kafka.bootstrap, kafka.security)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_records_come_over_tls_for_a_password_that_nobody_else_sees(
    known: Known, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with rota.Consumer(TOPIC, **known.settings(mechanism)) as consumer:
        assert values(consumer, RECORDS) == list(range(RECORDS))
        consumer.commit()
        shown = shown_to_all(consumer)
        assert f"--sasl-mechanism={mechanism}" in shown
    assert "joined generation" in caplog.text
    assert known.security.admin_password not in shown + caplog.text + repr(vars(consumer))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_said_and_not_shown(
    known: Known, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    said = failure_message(TOPIC, known.settings(mechanism, password=WRONG))
    assert "rejects the login of user 'admin'" in said
    assert WRONG not in said + caplog.text


def test_a_broker_of_an_untrusted_authority_is_refused(
    known: Known, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    said = failure_message(
        TOPIC, known.settings("SCRAM-SHA-512", ca_file=Authority(tmp_path / "foreign").certificate)
    )
    assert "is not trusted" in said
    assert known.bootstrap in said
    assert known.security.admin_password not in said + caplog.text


def test_a_mechanism_that_is_not_known_is_refused_before_anything_is_sent(known: Known) -> None:
    with pytest.raises(errors.InvalidArgument, match="sasl_mechanism is 'DIGEST-MD5': use 'PLAIN'"):
        rota.Consumer(TOPIC, **known.settings("DIGEST-MD5"))


def test_a_group_that_was_not_granted_is_said(known: Known) -> None:
    settings = known.settings("PLAIN", user=known.security.user, password=known.security.password)
    assert "GROUP_AUTHORIZATION_FAILED" in failure_message(TOPIC, settings)


def test_a_login_without_a_password_is_refused(known: Known) -> None:
    with pytest.raises(errors.InvalidArgument, match="without sasl_password: set both"):
        rota.Consumer(TOPIC, **known.settings("PLAIN", password=""))
