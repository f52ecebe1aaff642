"""Brokers of a Kerberos realm for the tests of its logins, with and without TLS."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota_sidecar.engines.kafka.connection import connect
from rota_sidecar.engines.kafka.settings import KafkaSettings, Sasl, TlsFiles
from rota_sidecar.engines.kafka.settings import Kerberos as KerberosSettings
from rota_sidecar.engines.port import Refused, Unreachable
from tests.kafka.sidecar_group import WITHIN_S, run
from tests.support.kafka import Kafka, access, running
from tests.support.kafka.security import Kerberos, SecurityName
from tests.support.kerberos import Realm
from tests.support.sidecar import Sidecar

ALLOWED = "allowed-"
TOPIC = f"{ALLOWED}topic"
PARTITIONS = 4


@contextmanager
def kerberized(name: SecurityName, settings: Mapping[str, str] | None = None) -> Iterator[Kafka]:
    """Brokers whose user may read groups and topics that begin with `allowed-`; this process is a client of their realm."""
    with running(security=name, settings=settings) as kafka, pytest.MonkeyPatch.context() as environment:
        for variable, value in realm(kafka).environment.items():
            environment.setenv(variable, value)
        # No tickets of whoever runs the tests.
        environment.setenv("KRB5CCNAME", f"FILE:{realm(kafka).config.parent / 'no-cache'}")
        kafka.create_topic(TOPIC, partitions=PARTITIONS)
        allow(kafka, security(kafka).user)
        yield kafka


def allow(kafka: Kafka, user: str) -> None:
    """Allow a user to read groups and topics that begin with `allowed-`."""
    access.allow(kafka, user, ALLOWED, access.READ_GROUPS, access.READ_TOPICS)


def security(kafka: Kafka) -> Kerberos:
    """The brokers' realm and its files."""
    assert isinstance(kafka.security, Kerberos)
    return kafka.security


def realm(kafka: Kafka) -> Realm:
    return security(kafka).realm


def settings(
    kafka: Kafka, principal: str = "rota", keytab: Path | None = None, service_name: str = "kafka"
) -> KafkaSettings:
    """Settings of a principal, with its own keytab."""
    login = KerberosSettings(principal, keytab or realm(kafka).keytab_path(principal), service_name)
    return with_login(kafka, login)


def with_login(kafka: Kafka, login: KerberosSettings) -> KafkaSettings:
    """Settings with this login."""
    ca = security(kafka).ca
    return KafkaSettings(
        (kafka.bootstrap,), tls=None if ca is None else TlsFiles(ca), sasl=Sasl("GSSAPI", kerberos=login)
    )


def failure(wrong: KafkaSettings, within_s: float = WITHIN_S) -> Refused | Unreachable:
    """Why a connection fails."""
    found: list[Refused | Unreachable] = []

    async def attempt() -> None:
        try:
            await connect(wrong.addresses[0], wrong, within_s)
        except (Refused, Unreachable) as failed:
            found.append(failed)

    run(attempt())
    return found[0]


def log_in(right: KafkaSettings) -> None:
    """Connect once."""

    async def attempt() -> None:
        await (await connect(right.addresses[0], right, WITHIN_S)).close()

    run(attempt())


def process(kafka: Kafka, folder: Path, principal: str, **environment: str) -> Sidecar:
    """A sidecar as a process, with the principal's keytab."""
    ca = security(kafka).ca
    flags = (
        f"--topics={TOPIC}",
        *([] if ca is None else [f"--tls-ca={ca}"]),
        "--client-id=sidecar",
        "--sasl-mechanism=GSSAPI",
        f"--sasl-kerberos-principal={principal}",
        f"--sasl-kerberos-keytab={realm(kafka).keytab_path(principal)}",
    )
    return Sidecar(folder, kafka.bootstrap, f"{ALLOWED}{principal}", flags, environment=environment)
