"""The page of Kafka's parameters matches the code and Kafka's clients, and every difference of a default has its reason."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import yaml
from kafka import KafkaConsumer, KafkaProducer

from rota.consumer.options import NAMES as OF_CONSUMERS
from rota.parameters import CONSUMER, PRODUCER, KafkaParameters
from rota.producer.options import NAMES as OF_PRODUCERS
from scripts import kafka_parameters
from scripts.generate_parameters_reference import FILE, consumer_default, producer_default, shown, written
from scripts.kafka_parameters import SAME, Parameter
from tests.support.tree import REPO

PAGE = FILE.read_text()
Taken = Sequence[Parameter]
OF_CONSUMER = (kafka_parameters.CONSUMER, CONSUMER)
OF_PRODUCER = (kafka_parameters.PRODUCER, PRODUCER)
# Of kafka-python 2, which version 3 no longer has.
EARLIER = {"api_version_auto_timeout_ms", "sock_chunk_bytes", "sock_chunk_buffer_count"}
# Of confluent-kafka's documentation: what an application is likely to set.
OF_LIBRDKAFKA = {
    "bootstrap.servers", "client.id", "metadata.max.age.ms", "topic.metadata.refresh.interval.ms", "socket.timeout.ms",
    "reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms", "connections.max.idle.ms", "security.protocol",
    "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "sasl.mechanism", "sasl.mechanisms", "sasl.username",
    "sasl.password", "statistics.interval.ms", "error_cb", "stats_cb", "client.dns.lookup",
}  # fmt: skip
CONFLUENT_CONSUMER = OF_LIBRDKAFKA | {
    "group.id", "group.instance.id", "group.protocol", "client.rack", "partition.assignment.strategy", "session.timeout.ms",
    "heartbeat.interval.ms", "max.poll.interval.ms", "enable.auto.commit", "auto.commit.interval.ms", "auto.offset.reset",
    "enable.auto.offset.store", "fetch.wait.max.ms", "fetch.min.bytes", "fetch.max.bytes", "fetch.message.max.bytes",
    "max.partition.fetch.bytes", "isolation.level", "enable.partition.eof", "check.crcs", "allow.auto.create.topics", "on_commit",
}  # fmt: skip
CONFLUENT_PRODUCER = OF_LIBRDKAFKA | {
    "acks", "request.required.acks", "request.timeout.ms", "message.timeout.ms", "delivery.timeout.ms", "enable.idempotence",
    "transactional.id", "transaction.timeout.ms", "linger.ms", "queue.buffering.max.ms", "queue.buffering.max.kbytes",
    "batch.size", "message.send.max.retries", "retries", "compression.type", "compression.codec", "partitioner",
    "message.max.bytes", "max.in.flight", "max.in.flight.requests.per.connection",
}  # fmt: skip
# Values of kafka-python's defaults that are classes and objects.
STRATEGIES = {"RangePartitionAssignor": "range", "RoundRobinPartitionAssignor": "roundrobin"}


def test_the_page_matches_the_code() -> None:
    assert written() == PAGE, "run 'python -m scripts.generate_parameters_reference'"


def listed(taken: Taken, kafka: KafkaParameters) -> set[str]:
    return {each.setting for each in taken} | kafka.renamed.keys() | kafka.fixed.keys() | kafka.refused.keys()


@pytest.mark.parametrize(
    ("client", "known", "names"),
    [
        (
            OF_CONSUMER,
            OF_CONSUMERS,
            {*KafkaConsumer.DEFAULT_CONFIG, *EARLIER, *CONFLUENT_CONSUMER, "legacy_iterator"},
        ),
        (OF_PRODUCER, OF_PRODUCERS, {*KafkaProducer.DEFAULT_CONFIG, *EARLIER, *CONFLUENT_PRODUCER}),
    ],
)
def test_every_parameter_of_kafkas_clients_is_taken_renamed_or_refused(
    client: tuple[Taken, KafkaParameters], known: frozenset[str], names: set[str]
) -> None:
    taken, kafka = client
    assert {name.replace(".", "_") for name in names} - listed(taken, kafka) == set()
    assert {each.setting for each in taken} <= known | {"bootstrap_servers"}
    assert [name for name in listed(taken, kafka) if not re.search(rf"`{name}`", PAGE)] == []


def rendered(value: object) -> str:
    """A default of kafka-python, as the page shows it."""
    if isinstance(value, tuple) and value and isinstance(value[0], type):
        return ", ".join(STRATEGIES[each.__name__] for each in value)
    if isinstance(value, str):
        # Without its version.
        return re.sub(r"^kafka-python-.*", "kafka-python", value)
    plain = isinstance(value, int | float | None)
    return shown(value) if plain else type(value).__name__


@pytest.mark.parametrize(
    ("taken", "theirs"),
    [
        (kafka_parameters.CONSUMER, KafkaConsumer.DEFAULT_CONFIG),
        (kafka_parameters.PRODUCER, KafkaProducer.DEFAULT_CONFIG),
    ],
)
def test_kafkas_defaults_are_those_of_its_client(taken: Taken, theirs: Mapping[str, object]) -> None:
    said = {
        each.setting: shown(each.default if each.kafka_python is SAME else each.kafka_python)
        for each in taken
        if each.setting in theirs
    }
    assert said == {name: rendered(theirs[name]) for name in said}
    assert len(said) > len(taken) * 2 / 3


@pytest.mark.parametrize(
    ("taken", "ours"),
    [(kafka_parameters.CONSUMER, consumer_default), (kafka_parameters.PRODUCER, producer_default)],
)
def test_a_default_that_differs_has_a_reason_and_no_other_has(
    taken: Taken, ours: Callable[[Parameter], object]
) -> None:
    differing = {each.name for each in taken if shown(each.default) != shown(ours(each))}
    assert {each.name for each in taken if each.why} == differing


def test_the_parameters_of_the_requirements_have_kafkas_defaults() -> None:
    expected: dict[str, object] = {
        "session.timeout.ms": 45_000,
        "heartbeat.interval.ms": 3_000,
        "max.poll.interval.ms": 300_000,
        "max.poll.records": 500,
        "fetch.min.bytes": 1,
        "fetch.max.bytes": 50 << 20,
        "fetch.max.wait.ms": 500,
        "auto.commit.interval.ms": 5_000,
        "retry.backoff.ms": 100,
    }
    rows = {each.name: each for each in kafka_parameters.CONSUMER}
    assert {name: rows[name].default for name in expected} == expected
    own = {name for name in expected if consumer_default(rows[name]) != expected[name]}
    assert own == {"fetch.max.bytes", "fetch.max.wait.ms"}


def fields_of(schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, part in schema.get("properties", {}).items():
        yield prefix + name
        yield from fields_of(part, f"{prefix}{name}.")


def test_every_field_of_a_manifest_that_the_page_names_is_there() -> None:
    crd = yaml.safe_load((REPO / "crds/consumergroups.yaml").read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    named = {each.manifest.removesuffix(" (Kafka)") for each in kafka_parameters.CONSUMER} - {
        "",
        "the pod's name",
    }
    assert named <= set(fields_of(spec))
