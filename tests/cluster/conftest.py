"""A fixture of tests that bring an operator of their own into the cluster."""

import pytest

from tests.support.cluster import WITHIN_S, Cluster
from tests.support.cluster.rota_manifests import NAMESPACE, OPERATOR


@pytest.fixture(scope="module")
def without_operator(consumer_groups: Cluster) -> Cluster:
    """The cluster with ConsumerGroups, in which no operator runs: one that was there is stopped until `rota_cluster` is needed again."""
    names = ["deployment", OPERATOR, "--namespace", NAMESPACE]
    if consumer_groups.kubectl("get", *names, "--ignore-not-found", "--output=name"):
        consumer_groups.kubectl("scale", *names, "--replicas=0")
        consumer_groups.kubectl(
            "wait", "pods", f"--selector=app={OPERATOR}", "--for=delete", f"--namespace={NAMESPACE}",
            f"--timeout={WITHIN_S}s",
        )  # fmt: skip
    return consumer_groups
