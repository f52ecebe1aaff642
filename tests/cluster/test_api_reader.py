"""Reads of the API over one connection say what kubectl says, and outlive what happens to the connection."""

import socket
from contextlib import closing

import pytest

from tests.support.cluster import Cluster
from tests.support.cluster.api import ApiReader
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.interruption import interrupted

pytestmark = pytest.mark.cluster


def test_each_name_of_a_kind_leads_to_it(cluster: Cluster) -> None:
    for word in ("configmap", "configmaps", "cm"):
        found = cluster.get(f"{word}/kube-root-ca.crt", namespace="default")
        assert (found["kind"], "managedFields" in found["metadata"]) == ("ConfigMap", False)
    with pytest.raises(KubectlFailed, match="serves no such resource"):
        cluster.get("carriages")


def test_what_is_not_there_is_refused_with_the_reason(cluster: Cluster) -> None:
    with pytest.raises(KubectlFailed, match=r'\(NotFound\): pods "nobody" not found'):
        cluster.get("pod/nobody")


def test_all_of_a_kind_are_those_with_the_labels(cluster: Cluster) -> None:
    names = [
        each["metadata"]["name"]
        for each in cluster.get("nodes", selector="kubernetes.io/hostname=n1")["items"]
    ]
    assert names == ["n1"]
    assert len(cluster.get("nodes")["items"]) == 2


def test_a_connection_that_was_closed_is_opened_again(cluster: Cluster) -> None:
    with closing(ApiReader(cluster.kubeconfig)) as reader:
        reader.get("node/n1", "")
        assert reader._connection.sock is not None
        reader._connection.sock.shutdown(socket.SHUT_RDWR)
        assert reader.get("node/n1", "")["metadata"]["name"] == "n1"


def test_a_read_that_is_interrupted_leaves_no_answer_to_the_next(cluster: Cluster) -> None:
    with closing(ApiReader(cluster.kubeconfig)) as reader:
        reader.get("node/n1", "")
        with interrupted():
            # A watch, whose answer has no end.
            reader._read("/api/v1/nodes?watch=1", "nodes")
        assert reader.get("node/n1", "")["metadata"]["name"] == "n1"
