"""Servers of a test inside a cluster's network: pods reach them at their address there, the test at its own."""

import json
from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from tests.support.cluster import Cluster
from tests.support.cluster.manifests import container, pod
from tests.support.kafka import wire
from tests.support.kafka.fixtures import StartKafka
from tests.support.kafka.security import ScramTls
from tests.support.postgres.fixtures import StartPostgres
from tests.support.prometheus.fixtures import StartPrometheus

# Brokers are started: begun before what takes a few seconds.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(200)]

TIMEOUT_S = 60
WIRE = Path(wire.__file__).read_text()
# Broker and pod speak the oldest Metadata request: no topics in it, all brokers in the answer.
ASK_KAFKA = """
import json, sys
host, port = sys.argv[1].split(":")
with socket.create_connection((host, int(port)), timeout=10) as connection:
    answer = exchange(connection, struct.pack(">hhihi", 3, 0, 1, -1, 0))
(length,) = struct.unpack_from(">h", answer, 12)
(advertised,) = struct.unpack_from(">i", answer, 14 + length)
print(json.dumps([answers(host, int(port)), f"{answer[14:14 + length].decode()}:{advertised}"]))
"""
ASK_KAFKA_OVER_TLS = """
import json, sys
host, port = sys.argv[1].split(":")
trusting = ssl.create_default_context(cadata=sys.argv[2])
print(json.dumps([answers(host, int(port)), answers(host, int(port), trusting)]))
"""
# PostgreSQL answers the request for TLS with one letter: N, it has none.
ASK_POSTGRES = """
import json, socket, struct, sys
host, port = sys.argv[1].split(":")
with socket.create_connection((host, int(port)), timeout=10) as connection:
    connection.sendall(struct.pack(">ii", 8, 80877103))
    print(json.dumps(connection.recv(1).decode()))
"""
ASK_PROMETHEUS = """
import json, sys, urllib.request
with urllib.request.urlopen(sys.argv[1] + "/-/ready", timeout=10) as answer:
    print(json.dumps(answer.status))
"""


def test_kafka(start_kafka: StartKafka, cluster: Cluster, namespace: str) -> None:
    kafka = start_kafka(reachable_from_pods=True)
    inside = kafka.bootstrap_for_pods

    assert inside != kafka.bootstrap
    assert ask_from_pod(cluster, namespace, WIRE + ASK_KAFKA, inside) == [True, inside]
    [broker] = AdminClient(kafka.client_config()).list_topics(timeout=TIMEOUT_S).brokers.values()
    assert f"{broker.host}:{broker.port}" == kafka.bootstrap


def test_kafka_with_a_login(start_kafka: StartKafka, cluster: Cluster, namespace: str) -> None:
    kafka = start_kafka(security="scram-tls", reachable_from_pods=True)
    assert isinstance(kafka.security, ScramTls)

    certificate = kafka.security.ca.read_text()
    answer = ask_from_pod(
        cluster, namespace, WIRE + ASK_KAFKA_OVER_TLS, kafka.bootstrap_for_pods, certificate
    )

    assert answer == [False, True], "not in plain text, and over TLS under the address that pods dial"
    assert len(AdminClient(kafka.client_config()).list_topics(timeout=TIMEOUT_S).brokers) == 1


def test_postgres(start_postgres: StartPostgres, cluster: Cluster, namespace: str) -> None:
    postgres = start_postgres(reachable_from_pods=True)
    inside = postgres.dsn_for_pods.partition("@")[2].partition("/")[0]

    assert ask_from_pod(cluster, namespace, ASK_POSTGRES, inside) == "N"
    with psycopg.connect(postgres.dsn) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_prometheus(start_prometheus: StartPrometheus, cluster: Cluster, namespace: str) -> None:
    prometheus = start_prometheus(reachable_from_pods=True)

    assert ask_from_pod(cluster, namespace, ASK_PROMETHEUS, prometheus.url_for_pods) == 200
    assert [sample.value for sample in prometheus.query("vector(1)")] == [1.0]


def ask_from_pod(cluster: Cluster, namespace: str, program: str, *arguments: str) -> object:
    """JSON that the program prints in a pod."""
    asker = container("asker", cluster.base_image, program, args=list(arguments))
    cluster.apply(pod("asker", asker, restartPolicy="Never"), namespace=namespace)
    cluster.wait("pod/asker", "jsonpath={.status.phase}=Succeeded", namespace=namespace)
    return json.loads(cluster.kubectl("logs", "--namespace", namespace, "asker"))
