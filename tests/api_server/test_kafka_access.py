"""A group on Kafka without members: seen, created and deleted with the operator's own credentials, and Unknown without them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.cluster import Cluster
from tests.support.cluster.manifests import Manifest, container, deployment
from tests.support.cluster.operator_process import OperatorProcess
from tests.support.kafka import Kafka
from tests.support.processes import wait_for

pytestmark = pytest.mark.api_server

NAMESPACE = "without-members"
SEEN, DENIED = "seen", "denied"
TOPIC = "without-members"
RECORDS = 5
WITHIN_S = 60


@pytest.fixture(scope="module")
def groups(api_server: Cluster, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two groups without pods, of which the operator may read one, and the other after its id is granted."""
    cluster = api_server
    kafka.create_topic(TOPIC, partitions=2)
    producer = Producer(kafka.client_config())
    for _ in range(RECORDS):
        producer.produce(TOPIC, b"v", None, 0)
    assert producer.flush(WITHIN_S) == 0
    folder: Path = tmp_path_factory.mktemp("kafka-access")
    clusters = {"clusters": [{"name": "main", "bootstrapServers": [kafka.bootstrap]}]}
    (folder / "clusters.yaml").write_text(json.dumps(clusters))
    cluster.kubectl("create", "namespace", NAMESPACE)
    for each in (group(SEEN, kafka), group(DENIED, kafka, groupId="of-another-team")):
        cluster.apply(each, namespace=NAMESPACE)
    flags = (f"--namespace={NAMESPACE}", f"--kafka-clusters={folder}")
    operator = OperatorProcess(tmp_path_factory.mktemp("operator"), cluster.kubeconfig, *flags)
    operator.start()
    yield cluster
    operator.stop()
    cluster.kubectl("delete", "consumergroup", DENIED, "--namespace", NAMESPACE, "--wait=false")
    cluster.kubectl("patch", "consumergroup", DENIED, "--namespace", NAMESPACE, "--type=merge", '--patch={"metadata":{"finalizers":null}}')  # fmt: skip
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def group(name: str, kafka: Kafka, **spec: object) -> list[Manifest]:
    """A ConsumerGroup scaled to zero, and its workload."""
    manifest = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"name": name},
        "spec": {
            "bootstrapServers": [kafka.bootstrap],
            "topics": [TOPIC],
            "replicas": 0,
            "scaleTargetRef": {"name": name},
            "deletionPolicy": "DeleteGroup",
            **spec,
        },
    }
    return [deployment(name, container("app", "none", ""), replicas=0), manifest]


def wait(cluster: Cluster, name: str, path: str, value: object) -> Any:  # noqa: ANN401  as it is stored
    """Wait for a value of a group's status; return the status, and its conditions by their types."""
    state = f"jsonpath={{.status.{path}}}={value}"
    cluster.wait(f"consumergroup/{name}", state, namespace=NAMESPACE, within_s=WITHIN_S)
    found = cluster.get(f"consumergroup/{name}", namespace=NAMESPACE)["status"]
    return found, {each["type"]: each for each in found["conditions"]}


def in_kafka(kafka: Kafka) -> set[str]:
    """Ids of all groups."""
    # Its requests end with it.
    admin = AdminClient(kafka.client_config())
    found = admin.list_consumer_groups().result(WITHIN_S)
    return {each.group_id for each in found.valid}


def test_it_is_seen_with_the_lag_of_its_initial_offsets(groups: Cluster, kafka: Kafka) -> None:
    found, conditions = wait(groups, SEEN, "lag.total", RECORDS)
    assert (found["members"], found["partitions"], found["unownedPartitions"]) == (0, 2, 2)
    assert (found["phase"], conditions["Ready"]["reason"]) == ("Idle", "ScaledToZero")
    assert "NoInitialOffsets" not in conditions["Ready"]["message"]
    assert f"{NAMESPACE}.{SEEN}" in in_kafka(kafka)


def test_without_a_grant_it_is_unknown_and_says_what_to_add(groups: Cluster) -> None:
    said = "add of-another-team to the cluster's groups in kafka.clusters"

    def is_said() -> bool:
        # Before Kafka has answered it is unknown, too.
        _, conditions = wait(groups, DENIED, 'conditions[?(@.type=="Lagging")].status', "Unknown")
        return (
            said in conditions["Lagging"]["message"] and "NoInitialOffsets" in conditions["Ready"]["message"]
        )

    wait_for("the grant that is missing is named", is_said, within_s=WITHIN_S, poll_s=0.2)
    found, _ = wait(groups, DENIED, 'conditions[?(@.type=="Lagging")].status', "Unknown")
    assert (found.get("members"), found.get("lag", {}).get("total")) == (None, None), found


def test_it_is_deleted_with_its_consumergroup(groups: Cluster, kafka: Kafka) -> None:
    groups.kubectl("delete", "consumergroup", SEEN, "--namespace", NAMESPACE, f"--timeout={WITHIN_S}s")
    assert f"{NAMESPACE}.{SEEN}" not in in_kafka(kafka)
