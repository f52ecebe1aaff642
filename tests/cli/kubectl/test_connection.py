"""Each way in which the API server cannot be asked is one sentence that says what is wrong, where, and what to do next."""

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.kubectl.api_server import Answer, ApiServer, Sent, Silent, refusal, serving
from tests.cli.kubectl.conftest import Kubectl, Serve, write_kubeconfig
from tests.cli.kubectl.resources import NAME, answering, group, not_found
from tests.support.certificates import LOOPBACK, Authority
from tests.support.ports import free_port

DESCRIBE = ("groups", "describe", NAME)
NOT_SERVED = "install its CustomResourceDefinition, for example with the chart of Rota, or choose another cluster with --context"
BLOCKED = """
import sys
sys.modules["kubernetes"] = None
from rota_cli.kubectl import main
main()
"""


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that KUBECONFIG names; it does not exist. The process is in no pod."""
    file = tmp_path / "config"
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(file))
    return file


def test_without_a_kubeconfig(kubectl: Kubectl, kubeconfig: Path) -> None:
    done = kubectl(*DESCRIBE)
    assert (done.code, done.error) == (
        4,
        f"no kubeconfig at {kubeconfig}: name one with --kubeconfig or KUBECONFIG",
    )


def test_without_such_a_context(kubectl: Kubectl, kubeconfig: Path) -> None:
    write_kubeconfig(kubeconfig, "http://127.0.0.1:1")
    done = kubectl(*DESCRIBE, "--context", "other")
    assert (done.code, done.error) == (
        4,
        f"no context other in the kubeconfig {kubeconfig}: see `kubectl config get-contexts`",
    )


@pytest.mark.parametrize(
    "text", ["a: [", "7", "contexts: 7", "contexts: [{}]\ncurrent-context: x", '{"current-context": "x", "contexts": [{"name": "x"}]}']
)  # fmt: skip
def test_a_malformed_kubeconfig(kubectl: Kubectl, kubeconfig: Path, text: str) -> None:
    kubeconfig.write_text(text)
    done = kubectl(*DESCRIBE)
    assert done.code == 2
    assert done.error.startswith(f"the kubeconfig {kubeconfig} cannot be used (")
    assert done.error.endswith("): check it with `kubectl config view`")


def test_a_kubeconfig_without_a_current_context(kubectl: Kubectl, kubeconfig: Path) -> None:
    kubeconfig.write_text("apiVersion: v1\nkind: Config\n")
    done = kubectl(*DESCRIBE)
    assert (done.code, done.error) == (
        2,
        f"the kubeconfig {kubeconfig} has no current context: choose one with --context",
    )


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("/does/not/exist", "[Errno 2] No such file or directory: '/does/not/exist'"),
        ("false", "exec: process returned 1"),
    ],
)
def test_a_login_program_that_fails(kubectl: Kubectl, kubeconfig: Path, command: str, reason: str) -> None:
    write_kubeconfig(kubeconfig, "http://127.0.0.1:1")
    config = json.loads(kubeconfig.read_text())
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "interactiveMode": "Never"}
    config["users"][0]["user"] = {"exec": plugin}
    kubeconfig.write_text(json.dumps(config))
    done = kubectl(*DESCRIBE)
    assert (done.code, done.error) == (
        1,
        f"no credentials for context test of {kubeconfig} ({reason}): log in again, or check its user with `kubectl config view`",
    )


def test_an_api_server_that_is_away(kubectl: Kubectl, kubeconfig: Path) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    write_kubeconfig(kubeconfig, address)
    done = kubectl(*DESCRIBE)
    assert (done.code, done.error) == (
        3,
        f"{address} cannot be reached (Connection refused): check that the API server runs, and the address of context test of {kubeconfig}",
    )


def test_an_api_server_that_does_not_answer(serve: Serve, kubectl: Kubectl, tmp_path: Path) -> None:
    server = serve(lambda sent: Silent())
    done = kubectl(*DESCRIBE, "--timeout", "0.2")
    assert (done.code, done.error) == (
        3,
        f"{server.address} did not answer within 0.2 s: check the network, and the address of context test of {tmp_path}/config",
    )


def answers(status: int, message: str) -> Callable[[Sent], Answer]:
    return lambda sent: refusal(status, message)


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (
            answers(401, "Unauthorized"), 1,
            "{} rejects the caller's credentials: log in again, or choose others with --context or --kubeconfig",
        ),
        (
            answers(403, 'forbidden: User "alice" cannot get resource "consumergroups"'), 1,
            "alice may not get consumergroups.rota.dev in namespace shop at {}: ask its administrator for this right",
        ),
        (
            not_found, 4,
            "consumergroup shop/orders-enricher not found at {}: see `kubectl get cg -n shop`, the name is not the group id",
        ),
        (
            lambda sent: Answer(404, b"404 page not found\n"), 4,
            f"{{}} does not serve rota.dev/v1alpha1: {NOT_SERVED}",
        ),
        (
            answers(429, "too many requests"), 3,
            "{} cannot serve consumergroup shop/orders-enricher now (too many requests): try again",
        ),
        (
            answers(500, "etcd is away"), 3,
            "{} cannot serve consumergroup shop/orders-enricher now (etcd is away): try again",
        ),
    ],
)  # fmt: skip
def test_a_refusal(
    serve: Serve, kubectl: Kubectl, answer: Callable[[Sent], Answer], code: int, message: str
) -> None:
    server = serve(answer)
    done = kubectl(*DESCRIBE)
    assert (done.code, done.error) == (code, message.format(server.address))


def test_an_answer_of_another_server(serve: Serve, kubectl: Kubectl) -> None:
    server = serve(lambda sent: Answer(200, b"<html>"))
    done = kubectl(*DESCRIBE)
    assert done.error.startswith(f"{server.address} does not answer in JSON: check the address of context")


@pytest.mark.parametrize("name", ["", "..", "A", "a/b", "a" * 254])
def test_a_name_that_cannot_be_one_is_refused_before_a_request(
    serve: Serve, kubectl: Kubectl, name: str
) -> None:
    server = serve(answering(group()))
    done = kubectl("groups", "describe", name)
    assert done.code == 2
    assert done.error.startswith(f'NAME "{name}" is not a valid name')
    assert server.sent == []


@pytest.mark.process
def test_a_certificate_of_an_unknown_authority(kubectl: Kubectl, kubeconfig: Path, tmp_path: Path) -> None:
    issued = Authority(tmp_path / "authority").issue("server", names=LOOPBACK)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    with serving(ApiServer(not_found), context) as server:
        write_kubeconfig(kubeconfig, server.address)
        done = kubectl(*DESCRIBE)
    assert done.code == 3
    assert done.error.startswith(f"no TLS connection to {server.address} (")
    assert "certificate verify failed" in done.error
    assert done.error.endswith(f"): check the certificate authority in context test of {kubeconfig}")


@pytest.mark.process
def test_without_the_kubernetes_client(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, *DESCRIBE], capture_output=True, text=True, env=dict(os.environ)
    )
    assert (done.returncode, done.stderr) == (
        4,
        "rota: the Kubernetes client is not installed: run pip install 'rota-cli[kubernetes]'\n",
    )
