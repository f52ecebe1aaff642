"""Every field of a ConsumerGroup changes what its sidecars are told, or is refused, or is about what processes have not."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest

from rota_operator.plan import kafka_properties
from rota_operator.plan.settings import flags_of, settings_json, settings_of
from rota_operator.plan.supported import IGNORED_FIELDS, Backend, unsupported
from rota_operator.spec.validation import Path, dotted, parse_spec
from rota_sidecar.config import kafka_properties as sidecars_properties
from rota_sidecar.config.flag_types import PROPERTY_LENGTH_MAX
from rota_sidecar.config.settings import parse_json, values_of
from rota_sidecar.engines.kafka.clients import uses_python_client
from tests.operator.spec.manifests import Spec, small, whole
from tests.operator.spec.test_validation import leaves

KAFKA, ROTA = "kafka:9092", "rota://rota:7070"
# Another value than the usual one, where `whole` has the usual one.
OTHERS: Mapping[Path, Any] = {
    ("bootstrapServers",): ["other:9092"],
    ("groupId",): "other",
    ("topics",): ["payments"],
    ("coordination",): "Kafka",
    ("suspend",): True,
    ("sidecar", "terminationDrainSeconds"): 5,
    ("membership", "sessionTimeoutSeconds"): 30,
    ("membership", "heartbeatIntervalSeconds"): 2,
    ("membership", "rebalanceTimeoutSeconds"): 60,
    ("membership", "processingTimeoutSeconds"): 60,
    ("membership", "static"): True,
    ("membership", "rackTopologyKey"): "rack",
    ("assignment", "strategy"): "range",
    ("assignment", "maxMovedPartitionsPercent"): 10,
    ("offsets", "initialOffset"): "latest",
    ("offsets", "onOffsetExpired"): "latest",
    ("offsets", "commit", "mode"): "sync",
    ("offsets", "commit", "intervalSeconds"): 9,
    ("delivery", "ordering"): "key",
    ("delivery", "concurrency"): 7,
    ("delivery", "timeout"): "PT1M",
    ("delivery", "retry"): 1,
    ("delivery", "backoffPolicy"): "linear",
    ("delivery", "backoffDelay"): "PT2S",
    ("delivery", "rateLimit", "max"): 100,
    ("sidecar", "imagePullPolicy"): "Never",
    ("sidecar", "imagePullSecrets"): ["other"],
    ("autoscaling", "minReplicaCount"): 2,
    ("autoscaling", "maxReplicaCount"): 3,
    ("autoscaling", "pollingInterval"): 11,
    ("autoscaling", "minChangeIntervalSeconds"): 11,
    ("autoscaling", "lagSecondsTarget"): 11,
    ("autoscaling", "catchUpSeconds"): 11,
    ("autoscaling", "targetUtilization"): 0.5,
    ("autoscaling", "partitionAlignment"): "even",
    ("autoscaling", "dryRun"): True,
    ("autoscaling", "fallback", "failureThreshold"): 7,
    ("spark", "apiVersion"): "spark.apache.org/v1",
    ("spark", "partitionsPerApplication"): 7,
    ("podDisruptionBudget", "maxUnavailable"): 2,
    ("monitoring", "granularity"): "topic",
    ("monitoring", "alerts", "lagSeconds"): 7,
    ("monitoring", "alerts", "stuckSeconds"): 7,
    ("deletionPolicy",): "DeleteGroup",
}
# What the manifests' reader and the runner act on, not the sidecar.
OF_THE_RUNNER = {
    ("groupId",), ("replicas",), ("scaleTargetRef", "apiVersion"), ("scaleTargetRef", "kind"), ("scaleTargetRef", "name"),
    ("sidecar", "container"), ("spark", "partitionsPerApplication"), ("spark", "template", "spec"),
}  # fmt: skip
# Decided by the runner's autoscaler: tests/operator/autoscaling.
AUTOSCALING = "autoscaling"
# A reset is orders to sidecars: tests/operator/local/test_offset_resets.py.
RESET = ("offsets", "reset")
# With these another field has to be given.
NEEDS: Mapping[Path, Spec] = {
    ("delivery", "mode"): {"delivery": {"http": {"url": "http://127.0.0.1:8080/"}}},
    ("delivery", "http", "url"): {"delivery": {"mode": "http"}},
    ("coordinatorAddress",): {"coordination": "Rota"},
}
# Fields of which one may be given alone.
OPEN = ("auth", "offsets", "autoscaling", "delivery", "membership", "monitoring", "spark")
FIELDS = [
    path
    for path in leaves(whole())
    if path not in OF_THE_RUNNER and path not in NEEDS and path != ("spark", "enabled")
    if path[: len(RESET)] != RESET and path[0] != AUTOSCALING
]


def configured(spec: Spec) -> object:
    """The flags, and the values that the sidecar reads in the settings file."""
    read = parse_spec(spec)
    return flags_of(read, "group"), values_of(parse_json(settings_json(read)))


def given(path: Path, spec: Spec) -> Spec:
    """The spec in which that field is another one, with what must be given beside it."""
    found = copy.deepcopy(spec)
    part: Any = found
    source: Any = whole()
    for name in path[:-1]:
        source = source[name]
        part = part.setdefault(name, {} if name in OPEN else copy.deepcopy(source))
    part[path[-1]] = OTHERS.get(path, source[path[-1]])
    return found


def refused(spec: Spec) -> list[Path]:
    """The paths of what is not supported."""
    errors = unsupported(parse_spec(spec))
    assert all(field_error.message.startswith("is not supported yet; remove it") for field_error in errors)
    return [field_error.path[1:] for field_error in errors]


@pytest.mark.parametrize("path", FIELDS, ids=dotted)
def test_a_field_has_an_effect_or_is_refused(path: Path) -> None:
    spec = given(path, small())
    if any(path[: len(field)] == field for field in IGNORED_FIELDS):
        assert refused(spec) == []
        assert configured(spec) == configured(small())
    elif paths := refused(spec):
        assert any(path[: len(each)] == each for each in paths)
    else:
        assert configured(spec) != configured(small())


@pytest.mark.parametrize("path", NEEDS, ids=dotted)
def test_fields_that_go_together_have_an_effect(path: Path) -> None:
    spec = given(path, {**small(), **copy.deepcopy(NEEDS[path])})
    assert refused(spec) == []
    assert configured(spec) != configured(small())


def test_spark_runs_on_a_laptop_without_autoscaling_and_by_one_kind_of_application() -> None:
    spec = {name: value for name, value in small().items() if name != "scaleTargetRef"}
    spark = {"enabled": True, "template": {"spec": {}}}
    assert refused({**spec, "spark": spark}) == []
    assert refused({**spec, "spark": {**spark, "apiVersion": "spark.apache.org/v1"}}) == [
        ("spark", "apiVersion")
    ]
    scaled = {**spec, "spark": spark, "autoscaling": {"enabled": True}}
    (error,) = unsupported(parse_spec(scaled))
    assert error.full_message.startswith("spec.autoscaling.enabled must not be true with spark.enabled")


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize(
    ("servers", "properties", "expected"),
    [
        (KAFKA, {"fetch.min.bytes": "1", "isolation.level": "read_committed"}, ""),
        (KAFKA, {"ssl.ca.location": "a"}, "spec.config.ssl.ca.location: is set by the sidecar itself"),
        (KAFKA, {"stats_cb": "a"}, "spec.config.stats_cb: is set by the sidecar itself"),
        (KAFKA, {"Fetch": "1"}, "spec.config.Fetch: must be a property of librdkafka"),
        (KAFKA, {"client.software": "x" * 1001}, "has 1001 characters; expected at most 1000"),
        (ROTA, {"isolation.level": "read_committed"}, ""),
        (ROTA, {"fetch.min.bytes": "1"}, "spec.config.fetch.min.bytes: applies to Kafka brokers only"),
    ],
)
def test_a_property_is_for_kafka_and_not_the_sidecars_own(
    servers: str, properties: Mapping[str, str], expected: str, backend: Backend
) -> None:
    spec = parse_spec({**small(), "bootstrapServers": [servers], "config": properties})
    found = [f"{dotted(each.path)}: {each.message}" for each in unsupported(spec, backend)]
    assert expected in "".join(found)
    assert len(found) == bool(expected)


def test_properties_are_flags_in_one_order() -> None:
    config = {"fetch.min.bytes": "1", "broker.address.family": "v4", "isolation.level": "read_committed"}
    flags = flags_of(parse_spec({**small(), "bootstrapServers": [KAFKA], "config": config}), "group")
    assert [flag for flag in flags if flag.startswith(("--config", "--isolation"))] == [
        "--isolation-level=read_committed",
        "--config=broker.address.family=v4",
        "--config=fetch.min.bytes=1",
    ]


def test_owned_properties_are_those_that_the_sidecar_refuses() -> None:
    for name in ("OWNED", "OWNED_PREFIXES", "FREE", "CALLBACK", "KEY"):
        assert getattr(kafka_properties, name) == getattr(sidecars_properties, name), name
    assert kafka_properties.LENGTH_MAX == PROPERTY_LENGTH_MAX
    mechanisms = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
    assert {each for each in mechanisms if uses_python_client(each)} == kafka_properties.WITHOUT_LIBRDKAFKA


def test_a_small_group_asks_for_nothing_that_is_not_there() -> None:
    assert unsupported(parse_spec(small())) == []


def test_addresses_are_those_of_the_runner() -> None:
    spec = parse_spec({**small(), "bootstrapServers": ["rota://a:1", "rota://b:2"]})
    flags = flags_of(spec, "group", lambda address: "rota://127.0.0.1:7070")
    assert "--bootstrap-servers=rota://127.0.0.1:7070" in flags


def test_a_pattern_stands_for_topics() -> None:
    spec = {name: value for name, value in small().items() if name != "topics"}
    settings = settings_of(parse_spec({**spec, "topicPattern": "orders-.*"}))
    assert (settings.topic_pattern, list(settings.topics)) == ("orders-.*", [])


def test_the_settings_file_is_a_part_of_the_spec() -> None:
    spec = parse_spec(small())
    written = json.loads(settings_json(spec))
    assert written["topics"] == list(spec.topics)
    assert written["membership"]["sessionTimeoutSeconds"] == spec.membership.session_timeout_seconds
    assert written["assignment"]["strategy"] == spec.assignment.strategy
    assert parse_json(settings_json(spec)) == settings_of(spec)
