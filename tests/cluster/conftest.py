"""Fixtures of tests that need a real API server, but no running pods: operator and coordinator are processes of this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.adopting import TOPIC, Shop, delete_all_groups, open_shop
from tests.support.cluster import Cluster
from tests.support.cluster.operator_process import OperatorProcess
from tests.support.cluster.rota_manifests import NAMESPACE, OPERATOR
from tests.support.coordinator import Coordinator, serving


@pytest.fixture(scope="module")
def without_operator(consumer_groups: Cluster) -> Cluster:
    """The cluster with ConsumerGroups, in which no operator runs: one that was there is stopped until `rota_cluster` is needed again."""
    names = ["deployment", OPERATOR, "--namespace", NAMESPACE]
    if consumer_groups.kubectl("get", *names, "--ignore-not-found", "--output=name"):
        consumer_groups.kubectl("scale", *names, "--replicas=0")
        consumer_groups.kubectl(
            "wait", "pods", f"--selector=app={OPERATOR}", "--for=delete", f"--namespace={NAMESPACE}"
        )
    return consumer_groups


@pytest.fixture(scope="module")
def outside_coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    """A coordinator that the operator reaches, and pods do not; it has the topic of `adopting`."""
    folder: Path = tmp_path_factory.mktemp("coordinator")
    with serving(folder, ("--group-min-session-timeout-ms=500",)) as coordinator:
        coordinator.make_topic(TOPIC, 2)
        yield coordinator


@pytest.fixture(scope="module")
def operator_process(
    without_operator: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """An operator outside of the cluster, for all namespaces. At the end it has to be the same process, without a bug met."""
    operator = OperatorProcess(tmp_path_factory.mktemp("operator"), without_operator.kubeconfig)
    operator.start()
    yield operator
    operator.stop()


@pytest.fixture(scope="module")
def operated(without_operator: Cluster, operator_process: OperatorProcess) -> Cluster:
    """The cluster with an operator outside of it, for all namespaces."""
    return without_operator


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
