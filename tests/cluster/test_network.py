"""Servers of a test run reach pods and are reached by them, without a port on any real network."""

import os
import socket
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.cluster.forward import forward
from tests.support.cluster.manifests import container, pod
from tests.support.processes import Process

pytestmark = pytest.mark.cluster

PORT, WITHIN_S = 8000, 60
ANSWER = b"answer" * 10_000_000
ASK = f"""
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout={WITHIN_S}).read().decode())
"""


def test_a_server_of_the_test_run_is_reached_from_pods_and_from_here(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "word").write_text("from the test")
    network = cluster.namespace()
    command = [*network.enter, sys.executable, "-m", "http.server", str(PORT), "--bind", network.address]
    server = Process.start("server", command, log=tmp_path / "log", cwd=tmp_path)
    try:
        with cluster.forward(network.address, PORT) as port:
            address = f"http://127.0.0.1:{port}/word"
            server.wait_until(lambda: answers(address), within_s=WITHIN_S)
            with urllib.request.urlopen(address, timeout=WITHIN_S) as answer:
                assert answer.read() == b"from the test"

        asker = container("asker", cluster.base_image, ASK, args=[f"http://{network.address}:{PORT}/word"])
        cluster.apply(pod("asker", asker, restartPolicy="Never"), namespace=namespace)
        cluster.wait("pod/asker", "jsonpath={.status.phase}=Succeeded", namespace=namespace)
        assert cluster.kubectl("logs", "--namespace", namespace, "asker") == "from the test\n"
    finally:
        server.kill()


def test_a_forward_passes_on_the_end_of_each_direction(tmp_path: Path) -> None:
    """A client that has said all still gets its answer, and a long one whole."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        forwarded = forward(os.getpid(), ("127.0.0.1", listening.getsockname()[1]), listen=0, logs=tmp_path)
        with forwarded as port, socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S) as client:
            client.sendall(b"question")
            client.shutdown(socket.SHUT_WR)
            served, _ = listening.accept()
            with served:
                assert read_all(served) == b"question"
                # More than fits into the sockets between the two, so both ends have to take part.
                sender = threading.Thread(target=send_all, args=(served, ANSWER))
                sender.start()
                assert read_all(client) == ANSWER
                sender.join()


def test_a_forward_to_nobody_breaks_the_connection(tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # taken, but not listening
        nobody = bound.getsockname()
        with (
            forward(os.getpid(), nobody, listen=0, logs=tmp_path) as port,
            pytest.raises(ConnectionResetError),
        ):
            connect_and_read(port)


def connect_and_read(port: int) -> bytes:
    with socket.socket() as client:
        client.settimeout(WITHIN_S)
        client.connect(("127.0.0.1", port))
        return client.recv(1)


def read_all(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def send_all(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=1).close()
    except OSError:
        return False
    return True
