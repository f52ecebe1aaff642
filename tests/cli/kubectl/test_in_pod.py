"""In a pod without a kubeconfig the commands have the identity of its service account, and its namespace."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota_cli.clusters.kubernetes import kubeconfig
from tests.cli.kubectl.api_server import ApiServer, serving
from tests.cli.kubectl.conftest import Kubectl, write_kubeconfig
from tests.cli.kubectl.resources import NAME, NAMESPACE, PATH, answering, group, not_found
from tests.support.certificates import LOOPBACK, Authority

pytestmark = pytest.mark.process

DESCRIBE = ("groups", "describe", NAME)


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the kubelet has mounted, with everything but the authority; there is no kubeconfig."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("token-of-the-pod")
    (folder / "namespace").write_text(NAMESPACE)
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT_FOLDER", folder)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    return folder


@pytest.fixture
def api_server(account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """The API server of the pod's cluster, whose authority the kubelet has mounted too."""
    authority = Authority(tmp_path / "authority")
    (account / "ca.crt").write_bytes(authority.certificate.read_bytes())
    issued = authority.issue("server", names=LOOPBACK)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    with serving(ApiServer(answering(group())), context) as server:
        host, _, port = server.address.removeprefix("https://").partition(":")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
        yield server


def test_a_pod_reads_its_own_namespace_with_its_token(
    api_server: ApiServer, kubectl: Kubectl, account: Path
) -> None:
    assert kubectl(*DESCRIBE).code == 0
    # The kubelet has replaced it.
    (account / "token").write_text("next-token")
    assert kubectl(*DESCRIBE).code == 0
    assert [(each.path, each.authorization) for each in api_server.sent if each.path.endswith(NAME)] == [
        (f"{PATH}/{NAME}", "bearer token-of-the-pod"),
        (f"{PATH}/{NAME}", "bearer next-token"),
    ]


def test_another_namespace_is_named_as_everywhere(api_server: ApiServer, kubectl: Kubectl) -> None:
    api_server.answer = not_found
    done = kubectl(*DESCRIBE, "--namespace", "billing")
    assert (done.code, done.error) == (
        4,
        f"consumergroup billing/{NAME} not found at {api_server.address}: see `kubectl get cg -n billing`, the name is not the group id",
    )


def test_the_doctor_names_the_service_account(api_server: ApiServer, kubectl: Kubectl) -> None:
    api_server.answer = answering(group(), version={"major": "1", "minor": "35", "gitVersion": "v1.35.4"})
    said = f"{api_server.address} of the pod's service account runs Kubernetes v1.35.4"
    assert said in kubectl("doctor", NAME).stdout


def test_a_kubeconfig_goes_before_the_service_account(
    api_server: ApiServer, kubectl: Kubectl, tmp_path: Path
) -> None:
    with serving(ApiServer(answering(group()))) as other:
        write_kubeconfig(tmp_path / "config", other.address)
        assert kubectl(*DESCRIBE).code == 0
    assert (api_server.sent, {each.authorization for each in other.sent}) == ([], {"Bearer secret"})


@pytest.mark.parametrize("flag", ["--kubeconfig", "--context"])
def test_a_kubeconfig_that_is_named_and_missing_is_not_replaced_by_the_service_account(
    api_server: ApiServer, kubectl: Kubectl, tmp_path: Path, flag: str
) -> None:
    done = kubectl(*DESCRIBE, flag, str(tmp_path / "config"))
    assert (done.code, api_server.sent) == (4, [])
    assert done.error == f"no kubeconfig at {tmp_path}/config: name one with --kubeconfig or KUBECONFIG"


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("token", "Service token file does not exist"),
        ("ca.crt", "Service certification file does not exist"),
        ("namespace", "[Errno 2] No such file or directory: '{}/namespace'"),
    ],
)
def test_a_pod_without_a_service_account(
    api_server: ApiServer, kubectl: Kubectl, account: Path, file: str, reason: str
) -> None:
    (account / file).unlink()
    done = kubectl(*DESCRIBE)
    assert done.code == 4
    assert done.error == (
        f"no kubeconfig at {account.parent}/config, and no service account of this pod at {account} "
        f"({reason.format(account)}): set automountServiceAccountToken in the pod's spec, or name a kubeconfig with "
        "--kubeconfig or KUBECONFIG"
    )
