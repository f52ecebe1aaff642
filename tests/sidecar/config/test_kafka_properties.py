"""Properties of Kafka's client: those that the sidecar sets itself are refused, and those that librdkafka does not know."""

import subprocess
import sys

import pytest

from rota_sidecar.config.kafka_properties import is_owned
from rota_sidecar.engines.kafka.librdkafka import connection_config
from rota_sidecar.engines.kafka.property_check import property_problem
from rota_sidecar.engines.kafka.settings import KafkaSettings, Sasl, TlsFiles
from tests.sidecar.config.configs import config_of

KAFKA = ("--bootstrap-servers=kafka:9092", "--group-id=orders", "--topics=a")


def test_properties_come_from_flags_or_from_the_lines_of_a_variable() -> None:
    flags = config_of(
        [*KAFKA, "--config=fetch.min.bytes=1000", "--config=client.dns.lookup = use_all_dns_ips"]
    )
    expected = {"fetch.min.bytes": "1000", "client.dns.lookup": "use_all_dns_ips"}
    assert flags.backend.kafka_properties == expected
    lines = "\n".join(f"{key}={value}" for key, value in expected.items())
    assert config_of(KAFKA, environ={"ROTA_CONFIG": f"{lines}\n\n"}).backend.kafka_properties == expected
    assert config_of(KAFKA).backend.kafka_properties == {}


def test_a_value_may_have_commas_and_equals_signs() -> None:
    found = config_of([*KAFKA, "--config=client.software=a=b,c=d"]).backend.kafka_properties
    assert found == {"client.software": "a=b,c=d"}


def test_connection_and_login_belong_to_the_sidecar() -> None:
    files = TlsFiles("ca", "certificate", "key")  # type: ignore[arg-type]  # only their names count
    everything = connection_config(
        KafkaSettings(("127.0.0.1:9092",), tls=files, sasl=Sasl("PLAIN", "user", "password"))
    )
    free = {key for key in everything if not is_owned(key)}
    assert free == {
        "connections.max.idle.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "socket.keepalive.enable",
    }


@pytest.mark.parametrize(
    ("given", "delays"),
    [
        ({}, {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 1_000}),
        ({"reconnect.backoff.ms": "3000"}, {"reconnect.backoff.ms": "3000"}),
        ({"reconnect.backoff.max.ms": "20"}, {"reconnect.backoff.max.ms": "20"}),
    ],
)
def test_a_delay_between_connections_that_is_given_is_beside_none_of_the_sidecars(
    given: dict[str, str], delays: dict[str, object]
) -> None:
    config = connection_config(KafkaSettings(("127.0.0.1:9092",), properties=given))
    assert {key: value for key, value in config.items() if key.startswith("reconnect")} == delays


@pytest.mark.parametrize(
    "key",
    [
        "group.id",
        "group.protocol",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.ssl.certificate.verification",
        "auto.offset.reset",
        "isolation.level",
        "metadata.broker.list",
        "ssl.key.password",
        "plugin.library.paths",
        "stats_cb",
        "transactional.id",
        "request.required.acks",
        "max.poll.records",
    ],
)
def test_what_delivery_depends_on_is_owned(key: str) -> None:
    assert is_owned(key)


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"fetch.min.bytes": "1000", "max.partition.fetch.bytes": "2000000"}, ""),
        ({"broker.address.family": "v4"}, ""),
        ({"compression.type": "zstd"}, ""),
        ({"fetch.max.wait.ms": "5"}, 'No such configuration property: "fetch.max.wait.ms"'),
        ({"fetch.min.bytes": "many"}, 'Invalid value for configuration property "fetch.min.bytes"'),
        ({"fetch.max.bytes": "1"}, "`fetch.max.bytes` must be >= `message.max.bytes`"),
    ],
)
def test_librdkafka_decides_about_names_and_values(properties: dict[str, str], problem: str) -> None:
    assert problem in property_problem(properties)
    assert bool(problem) == bool(property_problem(properties))


@pytest.mark.process
def test_an_unknown_property_ends_the_sidecar_before_it_joins() -> None:
    command = [sys.executable, "-m", "rota_sidecar", *KAFKA, "--config=fetch.max.wait.ms=5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr == 'rota-sidecar: --config: No such configuration property: "fetch.max.wait.ms"\n'
