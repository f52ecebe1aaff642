"""The cluster that the tests of a run share, and a namespace in it for each of them."""

import uuid
from collections.abc import Iterator

import pytest

from tests.support.cluster.cluster import Cluster, remove_leftovers, running
from tests.support.cluster.prepared import prepare
from tests.support.workdir import workdir


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A Kubernetes cluster with two nodes. A test that breaks it repairs it: `Cluster.repair`."""
    prepared = prepare()
    with workdir("cluster", abandoned=remove_leftovers) as folder, running(folder, prepared) as started:
        yield started


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A Kubernetes namespace of the test's own, in which pods can be created."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    cluster.wait("serviceaccount/default", "create", namespace=name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")
