"""Servers of a test run reach pods and are reached by them, without a port on any real network."""

import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.cluster.manifests import container, pod
from tests.support.processes import Process

pytestmark = pytest.mark.cluster

PORT = 8000
ASK = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())
"""


def test_a_server_of_the_test_run_is_reached_from_pods_and_from_here(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "word").write_text("from the test")
    place = cluster.place()
    command = [*place.enter, sys.executable, "-m", "http.server", str(PORT), "--bind", place.address]
    server = Process.start("server", command, log=tmp_path / "log", cwd=tmp_path)
    try:
        with cluster.forward(place.address, PORT) as port:
            address = f"http://127.0.0.1:{port}/word"
            server.wait_until(lambda: answers(address), within_s=10)
            with urllib.request.urlopen(address, timeout=10) as answer:
                assert answer.read() == b"from the test"

        asker = container("asker", cluster.base_image, ASK, args=[f"http://{place.address}:{PORT}/word"])
        cluster.apply(pod("asker", asker, restartPolicy="Never"), namespace=namespace)
        cluster.wait("pod/asker", "jsonpath={.status.phase}=Succeeded", namespace=namespace)
        assert cluster.kubectl("logs", "--namespace", namespace, "asker") == "from the test\n"
    finally:
        server.kill()


def answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=1).close()
    except OSError:
        return False
    return True
