"""kubectl reaches into pods: what people do first when something is wrong has to work in tests, too."""

import re
import urllib.request

import pytest

from tests.support.cluster import Cluster
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.cluster.kubectl_server import COMMANDS_MAX
from tests.support.cluster.manifests import container, pod
from tests.support.interruption import interrupted

pytestmark = pytest.mark.cluster

WITHIN_S = 60

SERVER = """
import http.server
print("serving")
http.server.test(http.server.SimpleHTTPRequestHandler, port=8000)
"""


@pytest.fixture
def server(cluster: Cluster, namespace: str) -> str:
    """The name of a pod that serves its file system."""
    listens = {"tcpSocket": {"port": 8000}, "periodSeconds": 1}
    serving = container("server", cluster.base_image, SERVER, readinessProbe=listens)
    cluster.apply(pod("server", serving), namespace=namespace)
    cluster.wait("pod/server", "condition=Ready", namespace=namespace)
    return "server"


def test_logs_and_exec(cluster: Cluster, namespace: str, server: str) -> None:
    assert "serving\n" in cluster.kubectl("logs", "--namespace", namespace, server)
    inside = cluster.kubectl(
        "exec", "--namespace", namespace, "--stdin", server, "--", "cat", input="passed on"
    )
    assert inside == "passed on"


def test_port_forward(cluster: Cluster, namespace: str, server: str) -> None:
    forward = cluster.start_kubectl("port-forward", "--namespace", namespace, f"pod/{server}", ":8000")
    try:
        forward.wait_until(lambda: "Forwarding from 127.0.0.1:" in forward.log.read_text(), within_s=WITHIN_S)
        port = re.findall(r"127\.0\.0\.1:(\d+)", forward.log.read_text())[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/etc/hostname", timeout=WITHIN_S) as answer:
            assert answer.read() == b"server\n"
    finally:
        forward.kill()


def test_a_refusal_is_raised_with_its_reason(cluster: Cluster) -> None:
    with pytest.raises(KubectlFailed, match=r'pods "nobody" not found'):
        cluster.kubectl("get", "pod/nobody")


def test_a_command_that_is_interrupted_leaves_no_result_to_the_next(cluster: Cluster) -> None:
    with interrupted():
        cluster.wait("node/n1", "condition=Nothing")
    assert cluster.kubectl("get", "node/n1", "--output=name") == "node/n1\n"


def test_there_is_no_limit_to_the_number_of_commands(cluster: Cluster) -> None:
    said = {cluster.kubectl("version", "--client", "--output=json") for _ in range(COMMANDS_MAX + 1)}
    assert len(said) == 1
