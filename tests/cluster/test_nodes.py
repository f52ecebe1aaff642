"""Nodes are lost and come back, soon enough for a test to wait for it."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster
from tests.support.cluster.manifests import Manifest, container, deployment, pod

pytestmark = pytest.mark.cluster

IDLE = "import signal; signal.pause()"
WATCH_WITHIN_S = 120
LOST = "condition=Ready=Unknown"
BACK = "condition=Ready=True"


@pytest.fixture(autouse=True)
def repaired(cluster: Cluster) -> Iterator[None]:
    """The cluster is the next test's, too, also after a failure."""
    yield
    cluster.repair()


def only_pod(cluster: Cluster, namespace: str) -> Manifest:
    """The pod that is not on its way out."""
    pods = cluster.get("pods", namespace=namespace)["items"]
    [found] = [each for each in pods if "deletionTimestamp" not in each["metadata"]]
    return dict(found)


def test_pods_of_a_stopped_node_are_replaced_and_the_node_comes_back(
    cluster: Cluster, namespace: str
) -> None:
    cluster.apply(deployment("idle", container("idle", cluster.base_image, IDLE)), namespace=namespace)
    cluster.wait("deployment/idle", "condition=Available", namespace=namespace)
    first = only_pod(cluster, namespace)
    node = first["spec"]["nodeName"]

    cluster.stop_node(node)
    cluster.wait(f"node/{node}", LOST)
    cluster.wait("deployment/idle", "condition=Available=False", namespace=namespace)
    cluster.wait("deployment/idle", "condition=Available", namespace=namespace)
    assert only_pod(cluster, namespace)["spec"]["nodeName"] != node

    cluster.start_node(node)
    cluster.wait(f"node/{node}", BACK)
    # What ran there when the plug was pulled is cleaned up only by the node itself.
    cluster.wait(f"pod/{first['metadata']['name']}", "delete", namespace=namespace)
    after = pod("after", container("after", cluster.base_image, IDLE), nodeName=node)
    cluster.apply(after, namespace=namespace)
    cluster.wait("pod/after", "condition=Ready", namespace=namespace)


def test_what_runs_on_a_node_without_a_link_runs_on(cluster: Cluster, namespace: str) -> None:
    cluster.apply(
        pod("idle", container("idle", cluster.base_image, IDLE), nodeName="n2"), namespace=namespace
    )
    cluster.wait("pod/idle", "condition=Ready", namespace=namespace)
    before = cluster.get("pod/idle", namespace=namespace)["status"]["containerStatuses"]

    cluster.cut_link("n2")
    cluster.wait("node/n2", LOST)
    cluster.mend_link("n2")

    cluster.wait("node/n2", BACK)
    # The kubelet says so once it hears that others think otherwise; a watch that died with the link is given up after 45 s
    # (HTTP/2's health check), and opened again with back-off.
    cluster.wait("pod/idle", "condition=Ready", namespace=namespace, within_s=WATCH_WITHIN_S)
    assert cluster.get("pod/idle", namespace=namespace)["status"]["containerStatuses"] == before
