"""The cluster that the tests of a run share, and a namespace in it for each of them."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support import rota_images
from tests.support.cluster.cluster import Cluster, remove_leftovers, running
from tests.support.cluster.prepared import prepare
from tests.support.cluster.rota_manifests import COORDINATOR, NAMESPACE, OPERATOR, rota
from tests.support.tree import REPO
from tests.support.workdir import workdir

DEFINITION = "consumergroups.rota.dev"


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """
    A Kubernetes cluster with two nodes. A test that breaks it repairs it: `Cluster.repair`.

    Where a test needs Rota's images, the nodes have them from their start.
    """
    needs_images = any("rota_cluster" in getattr(item, "fixturenames", ()) for item in request.session.items)
    prepared = rota_images.nodes() if needs_images else prepare()
    with workdir("cluster", abandoned=remove_leftovers) as folder, running(folder, prepared) as started:
        yield started


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A Kubernetes namespace of the test's own, in which pods can be created."""
    with new_namespace(cluster) as name:
        yield name


@contextmanager
def new_namespace(cluster: Cluster) -> Iterator[str]:
    """While open, there is a Kubernetes namespace of that name."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.create_namespace(name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session")
def consumer_groups(cluster: Cluster) -> Cluster:
    """The cluster, whose API server serves ConsumerGroups from now on."""
    serve_consumer_groups(cluster)
    return cluster


@pytest.fixture(scope="module")
def rota_cluster(consumer_groups: Cluster) -> Cluster:
    """
    The cluster with a coordinator and an operator in it; applications of tests use the image of the command line.

    Both stay there after the module; one that was stopped since starts again.
    """
    deploy_rota(consumer_groups)
    return consumer_groups


def serve_consumer_groups(cluster: Cluster) -> None:
    """Let the API server of a cluster serve ConsumerGroups."""
    cluster.kubectl("apply", "--server-side", "-f", str(REPO / "crds" / "consumergroups.yaml"))
    cluster.wait_served(DEFINITION)


def deploy_rota(cluster: Cluster) -> None:
    """Run a coordinator and an operator in a cluster that serves ConsumerGroups and knows Rota's images."""
    parts = rota_images.prepare()
    manifests = rota(*(parts[name].name for name in ("operator", "coordinator", "sidecar")))
    cluster.apply(manifests, namespace=NAMESPACE)
    for name in (COORDINATOR, OPERATOR):
        cluster.wait(f"deployment/{name}", "condition=Available", namespace=NAMESPACE)
