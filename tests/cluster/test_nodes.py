"""A node loses its link and comes back, soon enough for a test to wait for it."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster
from tests.support.cluster.manifests import container, pod

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
