"""Settings that a consumer's own sidecar would refuse are refused by the constructor, in the SDK's messages."""

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
from rota_sidecar.config.validation import assignor_problem
from rota_sidecar.core.assignors.built_in import NAMES

KAFKA, RECORDS_IN_KAFKA = "kafka:9092", {"bootstrap_servers": "kafka:9092"}
ROTA = "rota://127.0.0.1:7070"
CERTIFICATE, KEY, TOKEN = Path("tls.crt"), Path("tls.key"), Path("token")
LOGIN = {"sasl_mechanism": "PLAIN", "sasl_username": "me", "sasl_password": "hush"}
# By setting: what is given, and what the application is told.
BAD: dict[str, list[tuple[dict[str, Any], str]]] = {
    "group_id": [({"group_id": "g" * 250}, "group_id has 250 characters")],
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
            {**LOGIN, **RECORDS_IN_KAFKA, "sasl_mechanism": "GSSAPI"},
            "sasl_mechanism is 'GSSAPI': use 'PLAIN'",
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
        **RECORDS_IN_KAFKA,
        "sasl_mechanism": "PLAIN",
        "sidecar_flags": ["--sasl-username-file=u", "--sasl-password-file=p"],
    },
]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROTA_SIDECAR", "ROTA_SASL_USERNAME", "ROTA_SASL_PASSWORD"):
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
