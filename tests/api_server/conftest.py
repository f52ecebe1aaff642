"""Fixtures of tests that need a real API server, but no running pods: operator and coordinator are processes of this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api_server.adopting import TOPIC, Shop, delete_all_groups, open_shop
from tests.support.cluster.cluster import Cluster, remove_leftovers, running
from tests.support.cluster.fixtures import new_namespace, serve_consumer_groups
from tests.support.cluster.operator_process import OperatorProcess
from tests.support.cluster.prepared import prepare
from tests.support.coordinator import Coordinator, serving
from tests.support.workdir import workdir


@pytest.fixture(scope="session")
def api_server() -> Iterator[Cluster]:
    """An API server of Kubernetes that serves ConsumerGroups, with controllers and without nodes: pods stay Pending."""
    with (
        workdir("api-server", abandoned=remove_leftovers) as folder,
        running(folder, prepare(), ()) as started,
    ):
        serve_consumer_groups(started)
        yield started


@pytest.fixture
def namespace(api_server: Cluster) -> Iterator[str]:
    """A Kubernetes namespace of the test's own."""
    with new_namespace(api_server) as name:
        yield name


@pytest.fixture(scope="module")
def outside_coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    """A coordinator that the operator reaches, and pods do not; it has the topic of `adopting`."""
    folder: Path = tmp_path_factory.mktemp("coordinator")
    with serving(folder, ("--group-min-session-timeout-ms=500",)) as coordinator:
        coordinator.make_topic(TOPIC, 2)
        yield coordinator


@pytest.fixture(scope="module")
def operator_process(
    api_server: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """An operator outside of the cluster, for all namespaces. At the end it has to be the same process, without a bug met."""
    operator = OperatorProcess(tmp_path_factory.mktemp("operator"), api_server.kubeconfig)
    operator.start()
    yield operator
    operator.stop()


@pytest.fixture(scope="module")
def operated(api_server: Cluster, operator_process: OperatorProcess) -> Cluster:
    """The cluster with an operator outside of it, for all namespaces."""
    return api_server


@pytest.fixture(scope="module")
def namespaces(operated: Cluster) -> Iterator[list[str]]:
    """Names of the module's namespaces, which are deleted after the last test."""
    found: list[str] = []
    yield found
    delete_all_groups(operated)
    if found:
        operated.kubectl("delete", "namespace", *found, "--wait=false")


@pytest.fixture(scope="module")
def shop(operated: Cluster, outside_coordinator: Coordinator, namespaces: list[str]) -> Shop:
    """
    A namespace of the module's own, for workloads without running pods.

    Tests share it, with names of their own: to empty and delete a namespace costs the API server as much as a test does.
    """
    return open_shop(operated, outside_coordinator.address, namespaces)
