"""Logins with bearer tokens, for the tests of OAUTHBEARER: a broker with short sessions, and tokens of files and endpoints."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rota_service.oauth_provider import Clocks, TokenProvider
from rota_service.oauth_sources import TokenFile, TokenSource
from rota_sidecar.engines.kafka.settings import KafkaSettings, Sasl, TlsFiles
from tests.support.kafka import Kafka, running
from tests.support.kafka.access import READ_GROUPS, READ_TOPICS, WRITE_TOPICS, allow
from tests.support.kafka.issuer import Issuer
from tests.support.kafka.oauth import CLIENT_ID
from tests.support.kafka.security import OAuth, SecurityName

ALLOWED = "allowed-"
CLOCKS = Clocks(time.time, time.monotonic)  # noqa: TID251  tests of real brokers have real clocks


@contextmanager
def broker(security: SecurityName, session_s: float, issuer: Issuer | None = None) -> Iterator[Kafka]:
    """
    Run a broker with sessions of this length, and with unsecured tokens unless it has an issuer.

    Its user may read groups and topics that are named so, and write these topics.
    """
    settings = {
        **({} if issuer is None else issuer.broker_settings()),
        "connections.max.reauth.ms": str(round(session_s * 1000)),
    }
    java_option = "" if issuer is None else issuer.java_option
    with running(security=security, settings=settings, java_option=java_option) as kafka:
        allow(kafka, CLIENT_ID, ALLOWED, READ_GROUPS, READ_TOPICS, WRITE_TOPICS)
        yield kafka


def security(kafka: Kafka) -> OAuth:
    assert isinstance(kafka.security, OAuth)
    return kafka.security


def settings(kafka: Kafka, sasl: Sasl) -> KafkaSettings:
    ca = security(kafka).ca
    return KafkaSettings((kafka.bootstrap,), tls=None if ca is None else TlsFiles(ca), sasl=sasl)


def bearer(source: TokenSource, warnings: list[str] | None = None) -> Sasl:
    warn = [] if warnings is None else warnings
    return Sasl("OAUTHBEARER", tokens=TokenProvider(source, CLOCKS, warn.append))


def token_file(folder: Path, token: str) -> TokenFile:
    file = folder / "token"
    file.write_text(token + "\n")
    return TokenFile(file)
