"""The client of Kafka's records is chosen by the login, and only the one that is chosen is loaded."""

import asyncio
import subprocess
import sys
from dataclasses import replace

import pytest

from rota_sidecar import wiring
from rota_sidecar.config.sidecar_config import SidecarConfig
from rota_sidecar.engines.kafka.clients import uses_python_client
from rota_sidecar.engines.kafka.scram import MECHANISMS
from tests.sidecar.config.configs import config_of

KERBEROS = "GSSAPI"
FLAGS = ["--bootstrap-servers=127.0.0.1:1", "--group-id=g", "--topics=t"]
PYTHON = ("PythonRecords", "PythonDeadLetterWriter")
LIBRDKAFKA = ("KafkaRecords", "KafkaDeadLetterWriter")


def with_login(mechanism: str, *flags: str) -> SidecarConfig:
    """Return a configuration whose login has a mechanism, also one that no flag can name yet."""
    config = config_of([*FLAGS, *flags], environ={})
    login = replace(config.security.sasl, mechanism=mechanism, username="user", password="password")
    return replace(config, security=replace(config.security, sasl=login))


async def names_of_ports(config: SidecarConfig) -> tuple[str, str]:
    records = wiring.records_for(config, lambda _: None, lambda _: None)
    dead_letters = wiring.dead_letter_writer_for(config)
    await records.close()
    await dead_letters.close()
    return type(records).__name__, type(dead_letters).__name__


@pytest.mark.parametrize(
    ("mechanism", "expected"),
    [(KERBEROS, PYTHON), ("", LIBRDKAFKA), *((each, LIBRDKAFKA) for each in MECHANISMS)],
)
def test_the_login_decides_which_client_reads_and_writes_records(
    mechanism: str, expected: tuple[str, str]
) -> None:
    assert asyncio.run(names_of_ports(with_login(mechanism))) == expected
    assert uses_python_client(mechanism) == (expected is PYTHON)


def test_properties_of_librdkafka_are_refused_where_it_is_not_used() -> None:
    config = with_login(KERBEROS, "--config=fetch.min.bytes=1000")
    assert wiring.kafka_property_problem(config) == (
        "librdkafka, whose properties these are, has no login with GSSAPI and is not used; omit them"
    )
    assert wiring.kafka_property_problem(with_login(KERBEROS)) == ""


def test_the_python_client_does_not_load_librdkafka() -> None:
    program = (
        "import sys\n"
        "import rota_sidecar.engines.kafka.python_client.reading\n"
        "import rota_sidecar.engines.kafka.python_client.writing\n"
        "sys.exit('confluent_kafka' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
