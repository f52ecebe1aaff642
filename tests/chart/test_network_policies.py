"""Connections that the chart's NetworkPolicies allow and deny, decided by a solver: the test cluster only stores policies."""

import json
from collections.abc import Sequence

import pytest

from tests.chart.connections import Endpoint, allows
from tests.chart.rendered import FILES, OPEN, VARIANTS, of, of_kind, pods
from tests.support import helm
from tests.support.helm import Object

pytestmark = pytest.mark.process

SECURED = (*FILES["values-cert-manager.yaml"], "--set=tls.source=job")
POSTGRESQL = (
    *FILES["values-postgresql.yaml"],
    "--set=networkPolicy.postgresql[0].ipBlock.cidr=198.51.100.7/32",
)


def part(name: str, release: str = "rota", namespace: str = "rota") -> Endpoint:
    """Return a pod of a release."""
    labels = {"name": "rota", "instance": release, "component": name}
    return Endpoint(namespace, {f"app.kubernetes.io/{key}": value for key, value in labels.items()})


ENDS = {
    "operator": part("operator"),
    "coordinator": part("coordinator"),
    "certificates": part("certificates"),
    "check": part("test"),
    # Of another release, in the same namespace and elsewhere.
    "operator of b": part("operator", "b"),
    "coordinator of c": part("coordinator", "c", "other"),
    "sidecar in shop": Endpoint("shop", {"app": "orders"}),
    "sidecar in rota": Endpoint("rota", {"app": "orders"}),
    "sidecar in other": Endpoint("other", {"app": "orders"}),
    "prometheus": Endpoint("monitoring", {"app": "prometheus"}),
    "dns": Endpoint("kube-system", {"k8s-app": "kube-dns"}),
    "dns of the node": Endpoint(address="169.254.20.10"),
    "api server": Endpoint(address="10.96.0.1"),
    "database": Endpoint(address="198.51.100.7"),
    "internet": Endpoint(address="203.0.113.9"),
}
ALLOWED, DENIED = True, False
# From, to, port, and the answer; of a release for all namespaces, with Prometheus in "monitoring".
CONNECTIONS = (
    # Fleet.
    ("sidecar in shop", "operator", 7083, ALLOWED),
    ("sidecar in rota", "operator", 7083, ALLOWED),
    ("sidecar in other", "operator", 7083, ALLOWED),
    ("check", "operator", 7083, ALLOWED),
    ("internet", "operator", 7083, DENIED),
    # The coordinator.
    ("sidecar in shop", "coordinator", 7070, ALLOWED),
    ("sidecar in rota", "coordinator", 7070, ALLOWED),
    ("operator", "coordinator", 7070, ALLOWED),
    ("operator", "coordinator of c", 7070, ALLOWED),
    ("check", "coordinator", 7070, ALLOWED),
    ("internet", "coordinator", 7070, DENIED),
    ("coordinator", "coordinator", 7070, DENIED),
    # Metrics and readiness.
    ("prometheus", "operator", 7082, ALLOWED),
    ("prometheus", "coordinator", 7071, ALLOWED),
    ("check", "operator", 7082, ALLOWED),
    ("check", "coordinator", 7071, ALLOWED),
    ("sidecar in shop", "operator", 7082, DENIED),
    ("sidecar in shop", "coordinator", 7071, DENIED),
    ("sidecar in rota", "coordinator", 7071, DENIED),
    ("operator of b", "operator", 7082, DENIED),
    ("operator", "coordinator", 7071, DENIED),
    # Other ports.
    ("sidecar in shop", "operator", 22, DENIED),
    ("sidecar in shop", "coordinator", 7083, DENIED),
    ("prometheus", "coordinator", 443, DENIED),
    # The API server.
    ("operator", "api server", 443, ALLOWED),
    ("operator", "api server", 6443, ALLOWED),
    ("certificates", "api server", 443, ALLOWED),
    ("operator", "api server", 10250, DENIED),
    ("coordinator", "api server", 443, ALLOWED),
    ("coordinator", "api server", 10250, DENIED),
    ("check", "api server", 443, DENIED),
    # Nowhere else.
    ("operator", "sidecar in shop", 7081, DENIED),
    ("operator", "internet", 80, DENIED),
    ("operator", "operator", 7083, DENIED),
    ("certificates", "coordinator", 7070, DENIED),
    ("certificates", "internet", 80, DENIED),
    ("coordinator", "internet", 80, DENIED),
    ("coordinator", "sidecar in shop", 7081, DENIED),
    ("coordinator", "database", 5432, DENIED),
    ("check", "internet", 80, DENIED),
    ("check", "coordinator of c", 7070, DENIED),
    ("prometheus", "check", 7082, DENIED),
    ("sidecar in shop", "certificates", 7070, DENIED),
    # Of no concern to the chart.
    ("sidecar in shop", "sidecar in other", 80, ALLOWED),
    ("sidecar in rota", "internet", 443, ALLOWED),
    ("operator of b", "coordinator of c", 7070, ALLOWED),
)


def policies(*arguments: str) -> Sequence[Object]:
    return of_kind(helm.render(*arguments), "NetworkPolicy")


@pytest.mark.parametrize(("source", "target", "port", "answer"), CONNECTIONS)
def test_a_connection_is_allowed_or_denied(source: str, target: str, port: int, answer: bool) -> None:
    assert allows(policies(*SECURED), ENDS[source], ENDS[target], port) is answer


@pytest.mark.parametrize("source", ["operator", "certificates", "check"])
@pytest.mark.parametrize("target", ["dns", "dns of the node"])
def test_names_are_resolved(source: str, target: str) -> None:
    for protocol in ("UDP", "TCP"):
        assert allows(policies(*SECURED), ENDS[source], ENDS[target], 53, protocol)
    assert not allows(policies(*SECURED), ENDS[source], ENDS[target], 80)


@pytest.mark.parametrize(
    ("source", "target", "port", "answer"),
    [
        ("sidecar in shop", "operator", 7083, ALLOWED),
        ("sidecar in shop", "coordinator", 7070, ALLOWED),
        ("sidecar in other", "operator", 7083, DENIED),
        ("sidecar in other", "coordinator", 7070, DENIED),
        ("sidecar in rota", "coordinator", 7070, DENIED),
        ("operator", "coordinator", 7070, ALLOWED),
        ("prometheus", "coordinator", 7071, DENIED),
    ],
)
def test_of_some_namespaces_only_their_pods_connect(
    source: str, target: str, port: int, answer: bool
) -> None:
    found = policies(*FILES["values-namespaced.yaml"])
    assert allows(found, ENDS[source], ENDS[target], port) is answer


@pytest.mark.parametrize(
    ("target", "port", "answer"),
    [
        ("database", 5432, ALLOWED),
        ("internet", 5432, DENIED),
        ("database", 22, DENIED),
        ("dns", 53, ALLOWED),
        ("sidecar in shop", 5432, DENIED),
    ],
)
def test_coordinators_reach_their_database(target: str, port: int, answer: bool) -> None:
    assert allows(policies(*POSTGRESQL), ENDS["coordinator"], ENDS[target], port) is answer


@pytest.mark.parametrize(
    ("values", "target", "port", "answer"),
    [
        ((), "database", 9093, ALLOWED),
        ((), "database", 5432, DENIED),
        (("--set=networkPolicy.kafkaPorts={5432}",), "database", 5432, ALLOWED),
        (("--set=networkPolicy.kafka[0].ipBlock.cidr=198.51.100.0/24",), "internet", 9093, DENIED),
    ],
)
def test_the_operator_reaches_the_brokers_that_it_has_credentials_for(
    values: Sequence[str], target: str, port: int, answer: bool
) -> None:
    found = policies(*VARIANTS["Kafka clusters"], *values)
    assert allows(found, ENDS["operator"], ENDS[target], port) is answer
    assert not allows(policies(*SECURED), ENDS["operator"], ENDS["database"], 9093)


def test_the_operator_reaches_the_token_endpoints_of_its_clusters() -> None:
    cluster = {"name": "main", "bootstrapServers": ["kafka.kafka:9093"], "secret": "kafka-main"}
    tokens = {"saslMechanism": "OAUTHBEARER", "tokenEndpointUrl": "https://idp.example:8443/token"}
    ports = "--set=networkPolicy.tokenEndpointPorts={8443}"
    found = policies("--set-json=kafka.clusters=" + json.dumps([cluster | tokens]), ports)
    assert allows(found, ENDS["operator"], ENDS["internet"], 8443)
    without = policies("--set-json=kafka.clusters=" + json.dumps([cluster]), ports)
    assert not allows(without, ENDS["operator"], ENDS["internet"], 8443)


@pytest.mark.parametrize(
    ("target", "port"), [("api server", 443), ("internet", 443), ("dns", 53), ("operator", 7083)]
)
def test_a_coordinator_that_reviews_no_tokens_connects_to_nothing(target: str, port: int) -> None:
    assert not allows(of_kind(of(OPEN), "NetworkPolicy"), ENDS["coordinator"], ENDS[target], port)


def test_clients_can_be_named() -> None:
    found = policies("--set=networkPolicy.clients[0].podSelector.matchLabels.app=orders")
    assert allows(found, ENDS["sidecar in rota"], ENDS["coordinator"], 7070)
    assert not allows(found, ENDS["sidecar in shop"], ENDS["coordinator"], 7070)
    assert allows(found, ENDS["operator"], ENDS["coordinator"], 7070)


@pytest.mark.parametrize("variant", [each for each in VARIANTS if each != "values-quickstart.yaml"])
def test_every_pod_has_a_policy_for_both_directions(variant: str) -> None:
    unknown = Endpoint("unknown", {})
    for name, pod in pods(of(variant)):
        end = Endpoint("rota", pod["metadata"]["labels"])
        found = of_kind(of(variant), "NetworkPolicy")
        assert not allows(found, unknown, end, 1), name
        assert not allows(found, end, unknown, 1), name


def test_they_can_be_left_out() -> None:
    assert of_kind(of("values-quickstart.yaml"), "NetworkPolicy") == []
