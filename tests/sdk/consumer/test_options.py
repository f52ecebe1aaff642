"""Settings that a consumer's own sidecar would refuse are refused by the constructor, in the SDK's messages."""

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import rota
from rota import errors
from rota.consumer.options import Options
from rota.consumer.sidecar_options import SIDECAR_SETTINGS
from rota.consumer.sidecar_process import environment, flags
from rota.consumer.sidecars import Subscription
from rota.consumer.validation import STRATEGIES
from rota_sidecar.config.loading import read_sources
from rota_sidecar.config.sidecar_config import SidecarConfig
from rota_sidecar.config.validation import assignor_problem
from rota_sidecar.core.assignors.built_in import NAMES
from rota_sidecar.core.delivery.config import CommitMode
from rota_sidecar.wiring import kafka_property_problem
from tests.sdk.consumer import bearer_options, kerberos_options

KAFKA, RECORDS_IN_KAFKA = "kafka:9092", {"bootstrap_servers": "kafka:9092"}
ROTA = "rota://127.0.0.1:7070"
CERTIFICATE, KEY, TOKEN = Path("tls.crt"), Path("tls.key"), Path("token")
LOGIN = {"sasl_mechanism": "PLAIN", "sasl_username": "me", "sasl_password": "hush"}


# By setting: what is given, and what the application is told.
BAD: dict[str, list[tuple[dict[str, Any], str]]] = {
    "group_id": [
        ({"group_id": "g" * 250}, "group_id has 250 characters"),
        ({"group_id": 7}, "group_id is 7: use a text"),
    ],
    "bootstrap_servers": [
        ({"bootstrap_servers": "http://a:1"}, "'http://a:1' is not an address"),
        ({"bootstrap_servers": "a:99999"}, "bootstrap_servers has 'a:99999': use host:port"),
        ({"bootstrap_servers": "a b:1"}, "bootstrap_servers has 'a b:1': use host:port"),
        ({"bootstrap_servers": ["kafka:1", "rota://a:1"]}, "mixes addresses of Rota and Kafka"),
    ],
    "client_id": [
        ({"client_id": "a\nb"}, r"client_id is 'a\\nb': use at most 249 printable"),
        ({"client_id": "c" * 250}, "client_id is 'ccc"),
    ],
    "drain_timeout_ms": [
        ({"drain_timeout_ms": 2**31}, "drain_timeout_ms is 2147483648: use an integer number")
    ],
    "auto_offset_reset": [
        (
            {"auto_offset_reset": "smallest"},
            "auto_offset_reset is 'smallest': use 'earliest', 'latest' or 'none'",
        ),
    ],
    "auto_commit_interval_ms": [
        (
            {"auto_commit_interval_ms": 0},
            "auto_commit_interval_ms is 0: use an integer number of milliseconds from 1",
        ),
        ({"auto_commit_interval_ms": 0.5}, "auto_commit_interval_ms is 0.5: use an integer number"),
    ],
    "isolation_level": [
        ({"isolation_level": "committed"}, "isolation_level is 'committed': use 'read_uncommitted'")
    ],
    "max_poll_interval_ms": [
        ({"max_poll_interval_ms": -1}, "max_poll_interval_ms is -1: use an integer number")
    ],
    "session_timeout_ms": [
        ({"session_timeout_ms": "6000"}, "session_timeout_ms is '6000': use an integer number"),
        ({"session_timeout_ms": 2}, "session_timeout_ms is 2: use 3 or more"),
    ],
    "heartbeat_interval_ms": [
        ({"heartbeat_interval_ms": 0}, "heartbeat_interval_ms is 0: use an integer number"),
        (
            {"heartbeat_interval_ms": 15_001},
            "heartbeat_interval_ms is 15001, session_timeout_ms is 45000: use at most a third",
        ),
        (
            {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 3_000},
            "heartbeat_interval_ms is 3000, session_timeout_ms is 6000: use at most a third",
        ),
    ],
    "client_rack": [({"client_rack": "a\nb"}, r"client_rack is 'a\\nb': use at most 249 printable")],
    "fetch_min_bytes": [
        ({"fetch_min_bytes": 0}, "fetch_min_bytes is 0: use an integer number of bytes from 1 to 100000000"),
        ({"fetch_min_bytes": "1KB"}, "fetch_min_bytes is '1KB': use an integer number of bytes"),
    ],
    "fetch_max_bytes": [
        ({"fetch_max_bytes": 1e6}, "fetch_max_bytes is 1000000.0: use an integer number of bytes")
    ],
    "fetch_max_wait_ms": [
        (
            {"fetch_max_wait_ms": 30_001},
            "fetch_max_wait_ms is 30001: use an integer number of milliseconds from 1 to 30000",
        )
    ],
    "max_partition_fetch_bytes": [
        (
            {"max_partition_fetch_bytes": True},
            "max_partition_fetch_bytes is True: use an integer number of bytes",
        )
    ],
    "metadata_max_age_ms": [
        ({"metadata_max_age_ms": -1}, "metadata_max_age_ms is -1: use an integer number")
    ],
    "request_timeout_ms": [
        (
            {"request_timeout_ms": 9},
            "request_timeout_ms is 9: use an integer number of milliseconds from 10 to 300000",
        )
    ],
    "retry_backoff_ms": [({"retry_backoff_ms": 0.1}, "retry_backoff_ms is 0.1: use an integer number")],
    "retry_backoff_max_ms": [
        ({"retry_backoff_max_ms": 0}, "retry_backoff_max_ms is 0: use an integer number")
    ],
    "reconnect_backoff_ms": [
        ({**RECORDS_IN_KAFKA, "reconnect_backoff_ms": 0}, "reconnect_backoff_ms is 0: use an integer number"),
        (
            {"reconnect_backoff_ms": 50},
            "reconnect_backoff_ms is for Kafka, but bootstrap_servers is Rota's log",
        ),
    ],
    "reconnect_backoff_max_ms": [
        (
            {"reconnect_backoff_max_ms": 50},
            "reconnect_backoff_max_ms is for Kafka, but bootstrap_servers is Rota's log",
        )
    ],
    "connections_max_idle_ms": [
        (
            {"connections_max_idle_ms": 540_000},
            "connections_max_idle_ms is for Kafka, but bootstrap_servers is",
        )
    ],
    "security_protocol": [
        ({"security_protocol": "TLS"}, "security_protocol is 'TLS': use one of PLAINTEXT, SSL"),
        (
            {**RECORDS_IN_KAFKA, "security_protocol": "PLAINTEXT", "ssl_cafile": "ca.crt"},
            "security_protocol is 'PLAINTEXT', but ssl_cafile is for TLS: use 'SSL'",
        ),
        (
            {**RECORDS_IN_KAFKA, "security_protocol": "SSL", **LOGIN},
            "security_protocol is 'SSL', but sasl_mechanism is set: use 'SASL_SSL'",
        ),
        (
            {**RECORDS_IN_KAFKA, "security_protocol": "SASL_SSL"},
            "security_protocol is 'SASL_SSL', but sasl_mechanism is not set: use one of PLAIN",
        ),
        (
            {"security_protocol": "SASL_SSL"},
            "security_protocol is 'SASL_SSL', but bootstrap_servers is Rota's log, which has no SASL: use 'SSL'",
        ),
    ],
    "ssl_cafile": [
        (
            {"ssl_cafile": "ca.crt", "credentials": rota.Credentials(CERTIFICATE)},
            "ssl_cafile and credentials are both set",
        )
    ],
    "ssl_certfile": [({"ssl_certfile": "tls.crt"}, "ssl_keyfile is missing: a client certificate needs")],
    "ssl_keyfile": [({"ssl_keyfile": "tls.key"}, "ssl_certfile is missing: a client certificate needs")],
    "group_instance_id": [({"group_instance_id": "a/b"}, "group_instance_id is 'a/b': use at most 249 of")],
    "coordination": [
        ({"coordination": "zookeeper"}, "coordination is 'zookeeper': use 'auto', 'rota' or 'kafka'"),
        ({"coordination": "kafka"}, "coordination is 'kafka', but bootstrap_servers is Rota's log"),
        ({**RECORDS_IN_KAFKA, "coordination": "rota"}, "the records are in Kafka: set coordinator_address"),
    ],
    "coordinator_address": [
        (
            {"coordinator_address": "a:1"},
            "bootstrap_servers is Rota's log, which coordinates its groups: omit it",
        ),
        ({**RECORDS_IN_KAFKA, "coordinator_address": "a:1"}, "set coordination='rota'"),
        (
            {**RECORDS_IN_KAFKA, "coordination": "rota", "coordinator_address": "a"},
            "coordinator_address has 'a': use host:port",
        ),
    ],
    "partition_assignment_strategy": [
        (
            {"partition_assignment_strategy": "fair"},
            "partition_assignment_strategy is 'fair': use 'cooperative-sticky'",
        ),
        ({"partition_assignment_strategy": []}, "partition_assignment_strategy is empty: use"),
        ({"partition_assignment_strategy": ["range", "range"]}, "names a strategy twice"),
    ],
    "credentials": [
        ({"credentials": rota.Credentials(certificate_file=CERTIFICATE)}, "credentials has no key_file"),
        ({"credentials": rota.Credentials(key_file=KEY)}, "credentials has no certificate_file"),
        (
            {**RECORDS_IN_KAFKA, "credentials": rota.Credentials(token_file=TOKEN)},
            "which only Rota's servers accept",
        ),
        (
            {
                "bootstrap_servers": "rota://far.example:7070",
                "credentials": rota.Credentials(token_file=TOKEN),
            },
            "credentials would send the token to rota://far.example:7070 unencrypted: set ca_file",
        ),
    ],
    "sasl_mechanism": [
        (
            {**LOGIN, **RECORDS_IN_KAFKA, "sasl_mechanism": "DIGEST-MD5"},
            "sasl_mechanism is 'DIGEST-MD5': use 'PLAIN'",
        ),
        (LOGIN, "sasl_mechanism is for Kafka, but bootstrap_servers is Rota's log"),
    ],
    "sasl_username": [
        (
            {**RECORDS_IN_KAFKA, **LOGIN, "sasl_username": None},
            "sasl_mechanism is set without sasl_username",
        ),
    ],
    "sasl_password": [
        ({**RECORDS_IN_KAFKA, **LOGIN, "sasl_password": ""}, "sasl_mechanism is set without sasl_password"),
    ],
    **bearer_options.BAD,
    **kerberos_options.BAD,
    "sidecar_flags": [
        ({"sidecar_flags": "--rack=a"}, "sidecar_flags is the string '--rack=a': use a list"),
        ({"sidecar_flags": ["rack=a"]}, "sidecar_flags has 'rack=a': write flags as '--name=value'"),
    ],
}
GOOD: list[dict[str, Any]] = [
    {},
    {"bootstrap_servers": KAFKA},
    {"bootstrap_servers": ["kafka-1", "kafka-2:9093", "[::1]:9094"], **LOGIN},
    {"session_timeout_ms": 6_000},
    {"session_timeout_ms": 3},
    {"heartbeat_interval_ms": 15_000},
    {"heartbeat_interval_ms": 20_000, "sidecar_flags": ["--session-timeout-ms=60000"]},
    {"partition_assignment_strategy": ["cooperative-sticky", "range"]},
    {"partition_assignment_strategy": "load-aware-sticky,sticky"},
    {**RECORDS_IN_KAFKA, "coordination": "rota", "coordinator_address": "a:1,b:2"},
    {"credentials": rota.Credentials(token_file=TOKEN)},
    {
        "bootstrap_servers": "rota://far.example",
        "credentials": rota.Credentials(CERTIFICATE, CERTIFICATE, KEY, TOKEN),
    },
    {"group_instance_id": "orders-0", "client_id": "billing 1", "drain_timeout_ms": 1},
    {
        "client_rack": "eu-1 a",
        "fetch_min_bytes": 100_000_000,
        "fetch_max_bytes": 1,
        "fetch_max_wait_ms": 30_000,
    },
    {"max_partition_fetch_bytes": 1_000_000_000, "request_timeout_ms": 10, "metadata_max_age_ms": 1},
    {"retry_backoff_ms": 300_000, "retry_backoff_max_ms": 1},
    {**RECORDS_IN_KAFKA, "reconnect_backoff_ms": 3_600_000, "connections_max_idle_ms": 2**31 - 1},
    {**RECORDS_IN_KAFKA, "reconnect_backoff_max_ms": 1, "max_partition_fetch_bytes": 1_000_000_000},
    {**RECORDS_IN_KAFKA, "request_timeout_ms": 300_000, "fetch_max_bytes": 1_000_000_000},
    {**RECORDS_IN_KAFKA, "request_timeout_ms": 10, "max_partition_fetch_bytes": 1, "fetch_min_bytes": 1},
    {"bootstrap_servers": "rota://far.example", "security_protocol": "SSL"},
    {**RECORDS_IN_KAFKA, "security_protocol": "SASL_SSL", **LOGIN},
    {**RECORDS_IN_KAFKA, "security_protocol": "PLAINTEXT"},
    *bearer_options.GOOD,
    *kerberos_options.GOOD,
    {**RECORDS_IN_KAFKA, "ssl_cafile": "ca.crt", "ssl_certfile": "tls.crt", "ssl_keyfile": "tls.key"},
    {
        **RECORDS_IN_KAFKA,
        "sasl_mechanism": "PLAIN",
        "sidecar_flags": ["--sasl-username-file=u", "--sasl-password-file=p"],
    },
]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name == "ROTA_SIDECAR" or name.startswith("ROTA_SASL_")]:
        monkeypatch.delenv(name, raising=False)


def settings(more: dict[str, Any]) -> dict[str, Any]:
    return {"group_id": "billing", "bootstrap_servers": ROTA, **more}


def test_every_setting_of_the_sidecar_has_a_value_that_is_refused() -> None:
    given = {"group_id", "bootstrap_servers", "client_id", "drain_timeout_ms"}
    assert BAD.keys() == {*SIDECAR_SETTINGS, *given}
    assert BAD.keys() <= {each.name for each in fields(Options)}


@pytest.mark.parametrize(("more", "message"), [case for cases in BAD.values() for case in cases])
def test_a_value_that_the_sidecar_would_refuse_is_refused_by_every_constructor(
    more: dict[str, Any], message: str
) -> None:
    @rota.handler("orders")
    def work(record: rota.Record[Any, Any]) -> None:
        raise AssertionError(record)

    for make in (
        lambda: rota.Consumer("orders", **settings(more)),
        lambda: rota.AsyncConsumer("orders", **settings(more)),
        lambda: rota.run(work, **settings(more)),
    ):
        with pytest.raises(errors.InvalidArgument, match=message) as raised:
            make()
        assert "\n" not in str(raised.value)
        assert "hush" not in str(raised.value)


@pytest.mark.parametrize("more", GOOD)
def test_what_the_constructor_takes_the_sidecar_takes(
    more: dict[str, Any],
) -> None:
    options = Options(**settings(more))
    given = list(flags(options, address(options), Subscription(("orders",))))
    config = read_sources(given, environment(options)).config()
    assert assignor_problem(config.assignors, NAMES) == ""
    assert kafka_property_problem(config) == ""


def test_the_sidecar_of_a_consumer_without_automatic_commits_commits_nothing_by_itself() -> None:
    assert config_of({"enable_auto_commit": False}).delivery.commit_mode is CommitMode.EXTERNAL
    assert config_of({}).delivery.commit_mode is CommitMode.PERIODIC


def test_settings_under_kafkas_names_reach_the_sidecar() -> None:
    numbers = {
        "fetch_min_bytes": 1_000,
        "fetch_max_bytes": 2_000,
        "fetch_max_wait_ms": 250,
        "max_partition_fetch_bytes": 3_000,
        "metadata_max_age_ms": 4_000,
        "request_timeout_ms": 5_000,
        "retry_backoff_ms": 60,
        "retry_backoff_max_ms": 70,
    }
    config = config_of({"client_rack": "eu-1", **numbers})
    backend, member = config.backend, config.member
    assert (backend.fetch_min_bytes, backend.fetch_max_bytes, backend.fetch_max_wait_ms) == (
        1_000,
        2_000,
        250,
    )
    assert (config.delivery.ahead_bytes_max, backend.topics_refresh_ms) == (3_000, 4_000)
    assert (member.rack, member.request_timeout_ms, member.backoff_ms, member.backoff_max_ms) == (
        "eu-1",
        5_000,
        60,
        70,
    )
    assert backend.kafka_properties == {}
    on_kafka = config_of(
        {**RECORDS_IN_KAFKA, **numbers, "reconnect_backoff_ms": 80, "connections_max_idle_ms": 90_000}
    )
    assert on_kafka.backend.kafka_properties == {
        "fetch.message.max.bytes": "3000",
        "socket.timeout.ms": "5000",
        "reconnect.backoff.ms": "80",
        "reconnect.backoff.max.ms": "1000",
        "connections.max.idle.ms": "90000",
    }


def test_the_security_protocol_decides_about_tls_and_files_imply_it() -> None:
    def tls(**more: str) -> tuple[bool, Path | None]:
        found = config_of({**RECORDS_IN_KAFKA, **more}).security.tls
        return found.is_on, found.ca_file

    assert tls() == (False, None)
    assert tls(security_protocol="PLAINTEXT") == (False, None)
    assert tls(security_protocol="SSL") == (True, None)
    assert tls(security_protocol="SASL_SSL", **LOGIN) == (True, None)
    assert tls(security_protocol="SASL_PLAINTEXT", **LOGIN) == (False, None)
    assert tls(ssl_cafile="ca.crt") == (True, Path("ca.crt"))


def test_a_password_goes_in_plain_text_only_where_the_application_says_so() -> None:
    login = {**RECORDS_IN_KAFKA, **LOGIN}
    assert not config_of(login).security.is_insecure
    assert config_of({**login, "security_protocol": "SASL_PLAINTEXT"}).security.is_insecure
    coordinated = {"coordination": "rota", "coordinator_address": "rota:7070"}
    assert not config_of({**login, **coordinated, "security_protocol": "SASL_PLAINTEXT"}).security.is_insecure


def config_of(more: dict[str, Any]) -> SidecarConfig:
    options = Options(**settings(more))
    given = list(flags(options, address(options), Subscription(("orders",))))
    return read_sources(given, environment(options)).config()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            {"bootstrap_servers": "rota://coordinator:7070"},
            ["--rota-tls-ca=/etc/ca.crt", "--token-file=/etc/token"],
        ),
        (
            {**RECORDS_IN_KAFKA, "coordination": "rota", "coordinator_address": "coordinator:7070"},
            ["--rota-tls-ca=/etc/ca.crt", "--token-file=/etc/token"],
        ),
        (RECORDS_IN_KAFKA, []),
        (
            {"bootstrap_servers": ROTA, "credentials": rota.Credentials(ca_file=Path("own.crt"))},
            ["--tls-ca=own.crt"],
        ),
    ],
)
def test_the_variables_of_a_pod_are_for_rotas_servers_alone(
    more: dict[str, Any], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_TLS_CA", "/etc/ca.crt")
    monkeypatch.setenv("ROTA_TOKEN_FILE", "/etc/token")
    options = Options(**settings(more))
    given = list(flags(options, address(options), Subscription(("orders",))))
    assert [each for each in given if "tls" in each or "token" in each] == expected
    config = read_sources(given, environment(options)).config()
    assert config.security.token_file == (Path("/etc/token") if len(expected) == 2 else None)


def address(options: Options) -> str:
    return rota.addresses.address_of(options.bootstrap_servers)


def test_the_strategies_are_those_of_the_sidecar() -> None:
    assert STRATEGIES == NAMES


@pytest.mark.parametrize(
    ("topics", "pattern", "message"),
    [
        (["a/b"], "", "'a/b' is not a valid topic name"),
        ([".."], "", "'..' is not a valid topic name"),
        ([], "a(", r"the pattern 'a\(' is not a valid regular expression"),
    ],
)
def test_topics_that_cannot_be_are_refused_before_a_sidecar_starts(
    topics: list[str], pattern: str, message: str
) -> None:
    with (
        rota.Consumer(**settings({})) as consumer,
        pytest.raises(errors.InvalidArgument, match=message),
    ):
        consumer.subscribe(topics, pattern)
