"""The example of orders on Kafka's brokers: TLS with client certificates, passwords by SCRAM, and rules of what the user may do."""

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from tests.api_server.adopting import ready_of
from tests.cluster.planted import KINDS, find, lines_of, outputs
from tests.support.cluster import WITHIN_S, Cluster, images
from tests.support.cluster.kubectl import only_row
from tests.support.cluster.manifests import Manifest, container, deployment
from tests.support.cluster.orders import GROUP, SHOP, audit, move_to_kafka, orders
from tests.support.cluster.rota_manifests import NAMESPACE as ROTA
from tests.support.kafka import Kafka, running
from tests.support.kafka.security import Guarded
from tests.support.processes import steady_ms, wait_for

# The first of them starts the cluster and brokers in it, loads four images and waits for Rota's parts.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1_200)]

NAMESPACE = "orders-on-kafka"
# Documented for a machine that does nothing else; a busy one gets more time.
READY_S = 30
PARTITIONS, REPLICAS = 12, 3
# Secrets: for sidecars, for applications, and of the group whose login comes late.
KAFKA, APPLICATIONS = "kafka", "applications"
LATE = "late"
CERTIFICATES = ("ca.crt", "tls.crt", "tls.key")
LATE_TOPIC = f"{NAMESPACE}.late"
CONSUME = "import rota\nfor record in rota.Consumer(): pass"


class Example(NamedTuple):
    """The example, ready."""

    cluster: Cluster
    kafka: Kafka
    took_s: float
    """From `kubectl apply` to Ready."""

    def get(self, resource: str) -> Any:  # noqa: ANN401  as it is stored
        return self.cluster.get(resource, namespace=NAMESPACE)

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl(*arguments, f"--namespace={NAMESPACE}")

    def wait(self, resource: str, condition: str) -> None:
        self.cluster.wait(resource, condition, namespace=NAMESPACE)

    def wait_missing(self, group: str, missing: str) -> None:
        """Wait until the condition Ready says that a Secret or key is missing."""
        said = f"missing Secrets or keys: {missing}; create them in namespace {NAMESPACE}"

        def is_named() -> bool:
            ready = ready_of(self.get(f"consumergroup/{group}"))
            return ready.get("reason") == "SecretNotFound" and said in ready["message"]

        wait_for(f"{missing} is named", is_named, within_s=WITHIN_S, poll_s=0.2)


@pytest.fixture(scope="module")
def guarded(cluster: Cluster) -> Iterator[Kafka]:
    """Brokers that pods reach; the user may do in the namespace's topics and groups what its applications need."""
    allowed = {
        ResourceType.TOPIC: (AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE),
        ResourceType.GROUP: (AclOperation.READ,),
    }
    with running(security="guarded", network=cluster) as kafka:
        user = f"User:{security(kafka).user}"
        prefix = (f"{NAMESPACE}.", ResourcePatternType.PREFIXED, user, "*")
        rules = [
            AclBinding(kind, *prefix, operation, AclPermissionType.ALLOW)
            for kind, operations in allowed.items()
            for operation in operations
        ]
        admin = AdminClient(kafka.client_config())
        for created in admin.create_acls(rules).values():
            created.result(WITHIN_S)
        kafka.create_topic(LATE_TOPIC)
        yield kafka


@pytest.fixture(scope="module")
def example(rota_cluster: Cluster, guarded: Kafka) -> Iterator[Example]:
    """The example runs."""
    rota_cluster.create_namespace(NAMESPACE)
    rota_cluster.apply(list(secrets(security(guarded))), namespace=NAMESPACE)
    manifests = orders(NAMESPACE, images.part("cli").name)
    config = {"secretKeyRef": {"name": APPLICATIONS, "key": "config.json"}}
    move_to_kafka(manifests, guarded.bootstrap_for_pods, auth_of(KAFKA), config)
    began_ms = steady_ms()
    rota_cluster.apply(manifests, namespace=NAMESPACE)
    for condition in (f"jsonpath={{.status.members}}={REPLICAS}", "condition=Ready"):
        rota_cluster.wait(f"consumergroup/{GROUP}", condition, namespace=NAMESPACE)
    yield Example(rota_cluster, guarded, (steady_ms() - began_ms) / 1000)
    rota_cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def security(kafka: Kafka) -> Guarded:
    assert isinstance(kafka.security, Guarded)
    return kafka.security


def secrets(known: Guarded) -> Iterator[Manifest]:
    """Logins: files for sidecars, librdkafka's properties for applications."""
    texts = [path.read_text() for path in (known.ca, known.client.certificate, known.client.key)]
    login = {"username": known.user, "password": known.password}
    yield secret(KAFKA, {**dict(zip(CERTIFICATES, texts, strict=True)), **login})
    properties = {
        "security.protocol": known.protocol,
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": known.user,
        "sasl.password": known.password,
        **dict(zip(("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"), texts, strict=True)),
    }
    yield secret(APPLICATIONS, {"config.json": json.dumps(properties)})


def secret(name: str, data: Mapping[str, str]) -> Manifest:
    """A Secret."""
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded}


def auth_of(login: str) -> Manifest:
    """The group's `spec.auth`, with the login in this Secret."""
    ca, certificate, key = ({"name": KAFKA, "key": each} for each in CERTIFICATES)
    return {
        "tls": {"caCertSecret": ca, "certSecret": certificate, "keySecret": key},
        "sasl": {
            "mechanism": "SCRAM-SHA-512",
            "userSecret": {"name": login, "key": "username"},
            "passwordSecret": {"name": login, "key": "password"},
        },
    }


def late(servers: str, image: str) -> list[Manifest]:
    """A group of one member with its login in the Secret LATE; its workload has no pods before it is adopted."""
    group = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"name": LATE},
        "spec": {
            "bootstrapServers": [servers],
            "topics": [LATE_TOPIC],
            "replicas": 1,
            "scaleTargetRef": {"name": LATE},
            "membership": {"sessionTimeoutSeconds": 6, "heartbeatIntervalSeconds": 1},
            "auth": auth_of(LATE),
        },
    }
    return [deployment(LATE, container("app", image, CONSUME), replicas=0), group]


def test_a_group_on_kafka_with_scram_over_tls_is_ready_soon_and_one_line_shows_it(
    example: Example, report: list[str]
) -> None:
    report.append(
        f"orders on Kafka with SCRAM over TLS: Ready {example.took_s:.1f} s after kubectl apply (at most {READY_S} s on a quiet machine)"
    )
    example.wait(f"consumergroup/{GROUP}", "jsonpath={.status.lag.total}")
    shown = only_row(example.kubectl("get", "cg"))
    assert (shown["MEMBERS"], shown["PARTITIONS"], shown["READY"]) == (str(REPLICAS), str(PARTITIONS), "True")
    assert shown["LAG"].isdecimal()


def test_kafka_itself_coordinates_the_group(example: Example) -> None:
    admin = AdminClient(example.kafka.client_config())
    group_id = f"{NAMESPACE}.{GROUP}"
    everything = [(f"{NAMESPACE}.orders", number) for number in range(PARTITIONS)]

    def is_shared() -> bool:
        described = admin.describe_consumer_groups([group_id])[group_id].result(WITHIN_S)
        owned = [each for member in described.members for each in member.assignment.topic_partitions]
        return (
            described.state.name == "STABLE"
            and len(described.members) == REPLICAS
            and sorted((each.topic, each.partition) for each in owned) == everything
        )

    wait_for("Kafka's group has all members and partitions", is_shared, within_s=WITHIN_S, poll_s=0.2)
    cluster_id = admin.list_topics(timeout=WITHIN_S).cluster_id
    example.wait(f"consumergroup/{GROUP}", f"jsonpath={{.status.clusterId}}={cluster_id}")
    status = example.get(f"consumergroup/{GROUP}")["status"]
    assert (status["coordination"], status["groupId"]) == ("Kafka", group_id)


def test_a_missing_secret_or_key_is_named_until_it_is_there(example: Example) -> None:
    known, image = security(example.kafka), images.part("cli").name
    username, password = {"username": known.user}, {"password": known.password}
    example.cluster.apply(late(example.kafka.bootstrap_for_pods, image), namespace=NAMESPACE)
    for missing, then in ((LATE, username), (f"{LATE}/password", username | password)):
        example.wait_missing(LATE, missing)
        example.cluster.apply(secret(LATE, then), namespace=NAMESPACE)
    example.wait(f"consumergroup/{LATE}", "condition=Ready")


def test_each_order_is_priced_once(example: Example, tmp_path: Path) -> None:
    example.kubectl("scale", f"deployment/{SHOP}", "--replicas=0")
    example.kubectl("wait", "pods", f"--selector=app={SHOP}", "--for=delete", f"--timeout={WITHIN_S}s")
    config = {"KAFKA_CONFIG": json.dumps(example.kafka.security.client_config())}
    found = audit(NAMESPACE, example.kafka.bootstrap, tmp_path, config)
    produced = found.partition(",")[0].removeprefix("produced ")
    assert found == f"produced {produced}, processed {produced}, unprocessed 0, repeated 0"
    assert int(produced) > 0


def test_no_secret_of_the_login_is_in_a_log_an_event_an_object_an_argument_or_a_metric(
    example: Example,
) -> None:
    known = security(example.kafka)
    secrets = {"password": known.password, **lines_of("key", known.client.key.read_text())}
    found = outputs(example.cluster, (NAMESPACE, ROTA))
    assert {each.kind for each in found} == KINDS
    assert find(secrets, found) == []
