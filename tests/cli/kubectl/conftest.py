"""`kubectl rota` in this process, at an API server that answers as the test says."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rota_cli.kubectl_program import kubectl_program
from rota_cli.process import run_program
from tests.cli.command import CommandResult
from tests.cli.kubectl.api_server import Answer, ApiServer, Sent, Silent, Watch, serving

Serve = Callable[[Callable[[Sent], Answer | Watch | Silent]], ApiServer]
Kubectl = Callable[..., CommandResult]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Start a server that the kubeconfig in use names."""
    with ExitStack() as servers:

        def start(answer: Callable[[Sent], Answer | Watch | Silent]) -> ApiServer:
            server = servers.enter_context(serving(ApiServer(answer)))
            write_kubeconfig(tmp_path / "config", server.address)
            monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
            return server

        yield start


@pytest.fixture
def kubectl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Kubectl:
    """Run one command to its end."""

    def run(*arguments: str) -> CommandResult:
        monkeypatch.setattr("sys.argv", ["kubectl-rota", *arguments])
        code = run_program(kubectl_program, "kubectl rota")
        said = capsys.readouterr()
        return CommandResult(code, said.out, said.err)

    return run


def write_kubeconfig(file: Path, server: str) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    file.write_text(json.dumps(config))
